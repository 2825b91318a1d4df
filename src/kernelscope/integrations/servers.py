"""For inference servers: what vLLM and SGLang call in each of their processes when it starts.

vLLM loads the entry points of the group `vllm.general_plugins`, SGLang those of `sglang.srt.plugins`. Nothing
happens unless KERNELSCOPE_RUN is set.
"""

from __future__ import annotations

from kernelscope.config import autorecord_from_environment


def load() -> None:
    """Record this process, if the environment says so; once, however often it is called."""
    if autorecord_from_environment() is None:
        return
    from kernelscope.startup.autorecord import start

    start()
