"""Torch's distributed debug server: what each rank answers, and the pages of its frontend.

`torch.distributed.debug.start_debug_server()` opens a port on every rank, whose answers are named functions,
and on rank 0 a process with the pages, which fetch those answers. Both listen where torch has them listen.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import torch

from kernelscope.config import rank_from_environment

SERVER = "torch.distributed.debug"
FRONTEND = "torch.distributed.debug._frontend"
PAGES = "torch.distributed.debug._debug_handlers"
_BINDINGS = "torch._C._distributed_c10d"
_STORE = "torch.distributed.debug._store"


def why_no_server() -> str:
    """A sentence where this torch has no debug server that takes pages of others; else nothing."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return f"this torch ({torch.__version__}) is built without torch.distributed"
    bindings = importlib.import_module(_BINDINGS)
    if find_spec(SERVER) is None or not hasattr(bindings, "_register_handler"):
        return f"this torch ({torch.__version__}) has no distributed debug server"
    if find_spec(PAGES) is None:
        return (
            f"the distributed debug server of this torch ({torch.__version__}) cannot be extended with pages"
        )
    return ""


def answer_with(name: str, text: Callable[[], str]) -> None:
    """From now on, this rank's debug server answers /handler/NAME with this JSON; at most once per process.

    Torch calls it on a thread of its own. A rank without a server never calls it.
    """
    bindings = importlib.import_module(_BINDINGS)
    if name in bindings._get_handler_names():
        return

    def answer(request: Any, response: Any) -> None:
        response.set_content(text(), "application/json")
        response.set_status(200)

    # Torch drops its reference when Python has ended already: where that is the last one, the process aborts.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(answer))
    bindings._register_handler(name, answer)


def add_page(make: Callable[[], Any]) -> None:
    """Have the frontend show this page as well, if it is started after this with torch's own pages."""
    module: Any = importlib.import_module(PAGES)
    own = module.default_handlers
    if getattr(own, "adds", None) is make:
        return

    def default_handlers() -> list[Any]:
        return [*own(), make()]

    default_handlers.adds = make  # type: ignore[attr-defined]
    module.default_handlers = default_handlers


def before_frontend(begins: Callable[[], None]) -> None:
    """Call this in the process that torch starts for the pages, which is a new Python unless it is forked."""
    module: Any = importlib.import_module(FRONTEND)
    original = module.main

    @wraps(original)  # it is handed to the other process by this name
    def main(*args: Any, **kwargs: Any) -> Any:
        begins()
        return original(*args, **kwargs)

    module.main = main


def has_started() -> bool:
    """Whether this process has started the frontend, which takes no more pages then."""
    module: Any = importlib.import_module(SERVER)
    return getattr(module, "_DEBUG_SERVER_PROC", None) is not None


def worker_addresses() -> list[str]:
    """Where each rank's server listens, as it told the store of the job; "" where it has not been started."""
    store = importlib.import_module(_STORE).tcpstore_client()
    keys = [f"rank{rank}" for rank in range(rank_from_environment().world_size)]
    return [store.get(key).decode() if store.check([key]) else "" for key in keys]
