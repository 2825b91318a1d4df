"""Replaces Inductor's intermediate-value printer, which writes printing into generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet, moved

_LEVEL = "aot_inductor.debug_intermediate_value_printer"
_KERNELS = "aot_inductor.filtered_kernel_names"
_SET = "torch.utils._config_module:ConfigModule.__setattr__"


class StockPrinter(PatchSet):
    """Turns it off; `on_set` gets the level and the names of kernels that a program sets."""

    def __init__(self, on_set: Callable[[str, str], None]) -> None:
        self._on_set = on_set
        super().__init__(Patch(_SET, self._around_set))
        self._before, self._default = "0", "0"
        self._config: Any = None

    def install(self) -> None:
        import torch._inductor.config as config

        try:
            self._before = config.aot_inductor.debug_intermediate_value_printer
            entry = config._config[_LEVEL]  # type: ignore[attr-defined]
            # The environment's. What is set instead of it holds in this thread alone.
            self._default, entry.default = entry.default, "0"
        except (AttributeError, KeyError):
            raise moved(f"torch._inductor.config:{_LEVEL}") from None
        self._config = config
        if self._before != "0":
            config.aot_inductor.debug_intermediate_value_printer = "0"
        super().install()

    def remove(self) -> None:
        if self._config is None:
            return
        super().remove()
        self._config._config[_LEVEL].default = self._default
        if self._before != "0":
            self._config.aot_inductor.debug_intermediate_value_printer = self._before
        self._config = None

    @property
    def kernels(self) -> str:
        return str(self._config.aot_inductor.filtered_kernel_names or "")

    def _around_set(self, original: Any) -> Any:
        def set_attribute(module: Any, name: str, value: Any) -> None:
            if module is not self._config or name not in (_LEVEL, _KERNELS):
                original(module, name, value)
                return
            original(module, name, "0" if name == _LEVEL else value)
            self._on_set(str(value) if name == _LEVEL else "", self.kernels)

        return set_attribute
