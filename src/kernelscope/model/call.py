"""One recorded call as its users see it: its facts, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from kernelscope.text.visible import one_line

from .call_facts import CallFacts
from .html import call_html

_HASHES = ("hash", "input_hash", "outputs", "pre_hashes", "post_hashes")  # in `log`


class KernelCall(CallFacts):
    """A launch that prints itself."""

    __slots__ = ()

    def render(self, attributes: Sequence[str] = ()) -> str:
        """The block of seed 001: grid, one line an argument, outputs marked."""
        modified = self.modified_args
        lines = [
            f"    {'[OUT] ' if i in modified else ''}{name}={self._shown(i, attributes)},"
            for i, name in enumerate(self.arg_names)
        ]
        if lines:
            lines[-1] = lines[-1].removesuffix(",")
        log = {k: v for k, v in self.log.items() if k in ("outputs", "pre_hashes", "post_hashes")}
        grid = f"[grid={self.grid}]" if self.grid is not None else ""
        head = f"[{self.kind.capitalize()}] {self.kernel_name}{grid}("
        return "\n".join([head, *lines, ")" + (f"  # {log}" if log else "")])

    def line(self, attributes: Sequence[str] = (), *, show_inputs: bool = False) -> str:
        """The line of seed 000: name, arguments, output hashes."""
        found = self.log or {}
        shown = {"hash", "input_hash"} if show_inputs or self._notes.is_stock_form else {"hash"}
        own = {k: v for k, v in found.items() if k not in _HASHES}
        log = {k: v for k, v in found.items() if k in shown} | own
        return self._call_text(attributes) + (f"  # {log}" if log else "")

    def _call_text(self, attributes: Sequence[str]) -> str:
        args = ", ".join(f"{n}={self._shown(i, attributes)}" for i, n in enumerate(self.arg_names))
        return f"[{self.kind}] {self.kernel_name}({args})"

    def _shown(self, i: int, attributes: Sequence[str]) -> str:
        tensor = self.arguments[i].tensor
        if tensor is None:
            return str(self.args[i])
        label = self._notes.labels.get(i)
        return tensor.short if label is None else label.text(attributes)

    def __str__(self) -> str:
        return one_line(self.line())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return call_html(self)

    def __repr__(self) -> str:
        where = f" at {self.origin}" if self.origin else ""
        return one_line(f"<KernelCall {self.index} [{self.kind}] {self.kernel_name}{where}>")
