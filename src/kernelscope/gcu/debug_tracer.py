"""Traces of a graph on its way to machine code: `CONDUCTOR_DEBUG*`, or `enable_debug_tracing`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope import config, stages

if TYPE_CHECKING:
    import torch.fx

    from .cache import Library
    from .compile_graph import Compilation


@dataclass(frozen=True)
class DebugTraceConfig:
    """What is traced, and how much of it is shown.

    Example:
        enable_debug_tracing(DebugTraceConfig(enabled=True, max_tensor_elements=50, show_wrapper=False))
    """

    enabled: bool = False
    show_fx_graph: bool = True
    show_dag: bool = True
    show_dsl: bool = True
    show_wrapper: bool = True
    show_metadata: bool = True
    show_data_flow: bool = True
    max_tensor_elements: int = 100
    indent_size: int = 2
    debug_dir: str = "debug_dir"

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            kind = type(each.default)
            if kind is bool and type(value) is not bool:
                raise TypeError(f"{each.name} must be True or False, not {value!r}")
            if kind is int and (type(value) is not int or value < 0):
                raise ValueError(f"{each.name} must be an integer, 0 or more, not {value!r}")
        if not isinstance(self.debug_dir, str | PathLike):
            raise TypeError(f"debug_dir must be a path, not {self.debug_dir!r}")

    @classmethod
    def from_environment(cls, given: config.Conductor | None = None) -> DebugTraceConfig:
        """As the CONDUCTOR_DEBUG* variables say."""
        c = config.conductor_from_environment() if given is None else given
        return cls(
            c.debug, c.fx, c.dag, c.dsl, c.wrapper, c.meta, c.flow, c.max_elements, c.indent, c.debug_folder
        )

    def shown(self) -> stages.Shown:
        return stages.Shown(
            self.show_fx_graph,
            self.show_dag,
            self.show_dsl,
            self.show_wrapper,
            self.show_metadata,
            self.show_data_flow,
        )


_chosen: DebugTraceConfig | None = None


def enable_debug_tracing(given: DebugTraceConfig | None = None) -> None:
    """Trace from now on, whatever the environment says."""
    global _chosen
    if given is not None and not isinstance(given, DebugTraceConfig):
        raise TypeError(f"enable_debug_tracing takes a DebugTraceConfig, not {type(given).__name__}")
    _chosen = DebugTraceConfig(enabled=True) if given is None else given


def disable_debug_tracing() -> None:
    """Trace nothing from now on, whatever the environment says."""
    global _chosen
    _chosen = DebugTraceConfig(enabled=False)


def follow_environment() -> None:
    """Follow the environment again."""
    global _chosen
    _chosen = None


def current_config(given: config.Conductor | None = None) -> DebugTraceConfig:
    return _chosen if _chosen is not None else DebugTraceConfig.from_environment(given)


class Trace:
    """The trace of one Dynamo graph and the ATen graphs below it."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        inputs: list[Any],
        tracing: DebugTraceConfig,
        settings: config.Conductor,
    ) -> None:
        from kernelscope.stages.fx_part import fx_part

        self.tracing = tracing
        self.settings = settings
        self._fx = fx_part(module, inputs, tracing.max_tensor_elements)
        self._folder: Path | None = None
        self._commands: tuple[str, ...] = ()

    def show_fx(self) -> None:
        text = stages.render({"fx": self._fx}, self.tracing.shown())
        if text:
            print(text, flush=True)

    def folder(self) -> Path:
        """Where files go: the debug folder, or where that cannot be written, a temporary one."""
        if self._folder is None:
            wanted = Path(self.tracing.debug_dir)
            try:
                wanted.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=wanted):
                    pass
                self._folder = wanted
            except OSError as error:
                self._folder = Path(tempfile.mkdtemp(prefix="debug_dir-"))
                print(
                    f"kernelscope: {wanted} cannot be written ({error}); the trace is in {self._folder}",
                    file=sys.stderr,
                )
        return self._folder

    def build(self, done: Compilation) -> Library:
        """Compile from files that stay, without the cache."""
        from . import toolchain
        from .cache import Library
        from .trace_document import wrapper_text

        folder = self.folder()
        (folder / f"{done.name}.co").write_text(done.dsl, encoding="utf-8")
        (folder / toolchain.HEADER.name).write_text(toolchain.header_text(), encoding="utf-8")
        source = folder / f"host_wrapper_{done.name.removeprefix('kernel_')}.cpp"
        source.write_text(wrapper_text(done), encoding="utf-8")
        if self.settings.target != "cpu":
            self._hand_over(folder / f"{done.name}.co")
        # Elsewhere first: a library that is in use must not change under its users.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as making:
            stem, seconds = Path(making) / done.name, self.settings.compile_seconds
            built = toolchain.build(source, stem, seconds=seconds, beside_torch=True)
            library = folder / built.library.name
            built.object.replace(folder / built.object.name)
            built.library.replace(library)
            self._commands = built.commands
        return Library(library)

    def _hand_over(self, file: Path) -> None:
        from .target import hand_over

        print(hand_over(self.settings.target, file), flush=True)

    def show_rest(self, done: Compilation) -> None:
        """Print what there is below the FX graph, and write the document, also of a failed compilation."""
        from .trace_document import document

        made = document(done, self._fx, self._commands)
        text = stages.render({**made, "fx": None}, self.tracing.shown())
        if text:
            print(text, flush=True)
        if done.error is not None:
            print(f"\ncompilation failed in stage {done.failed_stage}: {done.error}", flush=True)
        folder = self.folder()
        name = (done.name or f"kernel_failed_{done.direction}").removeprefix("kernel_")
        path = folder / f"debug_trace_{name}.json"
        for kind, pattern in (
            ("dsl", f"kernel_{name}.co"),
            ("wrapper", f"host_wrapper_{name}.cpp"),
            ("object", f"kernel_{name}.o"),
            ("library", f"kernel_{name}.so"),
        ):
            if (folder / pattern).exists():
                made["files"][kind] = pattern
        stages.write(made, path, self.tracing.indent_size)
