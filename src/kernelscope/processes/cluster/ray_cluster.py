"""A cluster of Ray: reached under its address, or made of this machine alone. Ray is imported when needed."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernelscope.config import all_variables, set_variables
from kernelscope.errors import RunError

_LOCAL, _AUTO = "local", "auto"
_WAIT_S = 5.0  # for an answer of the address
# Of a cluster that is made here: it listens on loopback, as Ray does by itself on macOS and Windows, wants a
# token of each client, and sends no statistics.
_OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def connected(address: str, option: str) -> Iterator[Any]:
    """Ray at this address; without one at RAY_ADDRESS, and without that on this machine alone."""
    address = address or all_variables().get("RAY_ADDRESS") or _LOCAL
    is_own = address == _LOCAL
    if is_own:
        set_variables(_OWN | all_variables())
    require_ray(option)
    ray = import_module("ray")
    if ray.is_initialized():
        yield ray
        return
    if not is_own:
        _check_address(address, option)
    more = {"include_dashboard": False} if is_own else {}
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, **more)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _unreachable(address, option, str(error).partition("\n")[0]) from None
    try:
        with redirect_stdout(sys.stderr):  # Ray prints what it has to say to standard output
            yield ray
    finally:
        ray.shutdown()


def require_ray(option: str) -> None:
    """RunError where Ray is not installed. It is not imported: it reads its variables when it is."""
    if find_spec("ray") is None:
        raise RunError(f"{option} needs Ray, which is not installed: pip install 'kernelscope[ray]'")


def _check_address(address: str, option: str) -> None:
    """RunError unless something listens there: Ray itself would try for minutes."""
    if address == _AUTO:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise RunError(f"{option}: {address!r} is not HOST:PORT, ray://HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT_S).close()
    except OSError as error:
        raise _unreachable(address, option, error.strerror or str(error)) from None


def _unreachable(address: str, option: str, why: str) -> RunError:
    if address == _LOCAL:
        return RunError(f"{option}: Ray cannot be started on this machine: {why}")
    return RunError(
        f"{option}: the Ray cluster {address} cannot be reached: {why}; "
        f"without an address, {option} uses this machine alone"
    )
