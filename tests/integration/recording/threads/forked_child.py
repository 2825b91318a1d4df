"""A check in a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(check: Callable[[], None]) -> None:
    """Run a check in a forked child, and fail here when it failed there."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            check()
            os.write(write, b"ok")
        except BaseException as error:  # a child must not run the rest of the tests
            os.write(write, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    said = b""
    while piece := os.read(read, 4096):
        said += piece
    os.close(read)
    os.waitpid(pid, 0)
    assert said == b"ok", said.decode()
