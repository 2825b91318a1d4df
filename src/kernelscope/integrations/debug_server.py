"""For torch's distributed debug server: a page with what every rank has recorded so far.

Example:
    from torch.distributed.debug import start_debug_server
    from kernelscope.integrations.debug_server import add_page

    add_page()  # on each rank; `kernelscope run` and KERNELSCOPE_RUN do it themselves
    start_debug_server()
"""

from __future__ import annotations

from kernelscope.startup.debug_server import add_page
from kernelscope.startup.ranks_page import RanksPage

__all__ = ["RanksPage", "add_page"]
