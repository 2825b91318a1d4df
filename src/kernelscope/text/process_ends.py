"""How a process ended, as text."""

from __future__ import annotations

import signal

_SIGNALS = {int(known): known.name for known in signal.Signals}


def signal_name(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")


def how_it_ended(status: int, *, of_shell: bool = False) -> str:
    """ "was killed by SIGSEGV", "ended with status 3"; a shell says 128 + n for signal n.

    Any program may exit with 128 + n: only `of_shell`, where something else shows that it was killed, is that
    a signal.
    """
    if status < 0 or (of_shell and status - 128 in _SIGNALS):
        return f"was killed by {signal_name(-status if status < 0 else status - 128)}"
    return f"ended with status {status}"
