"""Where a watched condition held, and what happens then."""

from __future__ import annotations

import bdb
import pdb
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelscope.errors import EndedOnPurpose
from kernelscope.events import Finding, Site
from kernelscope.probes.bus import BUS

from .conditions import Condition
from .kernel_filter import KernelFilter


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a condition held: in which argument of which call, and whether that call produced it."""

    call: int
    kernel: str
    kind: str
    arg: str  # the kernel's name for it
    wrapper_name: str
    condition: str
    found: str  # in words
    is_producer: bool  # it did not hold for any of the inputs
    origin: str = ""
    remarks: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()  # the inputs, and what the launch left
    run: Path | None = None  # the run that has these tensors
    inputs: dict[str, torch.Tensor] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        name = self.arg + (f" ({self.wrapper_name})" if self.wrapper_name not in ("", self.arg) else "")
        where = f", from {self.origin}" if self.origin else ""
        lines = [f"call {self.call}, {self.kernel} [{self.kind}]{where}: {self.found} in {name}"]
        lines += [f"  {remark}" for remark in self.remarks]
        if self.files:
            lines.append(f"  its inputs and outputs are saved in {self.files[0].parent}")
        if self.run is not None:
            lines.append("  its inputs and outputs are saved in the run; to launch it alone with them:")
            lines.append(f"    kernelscope repro {_as_typed(self.run)} --call {self.call} --run")
        return "\n".join(lines)


def _as_typed(run: Path) -> str:
    is_part = run.suffix != ".kscope" and run.parent.suffix == ".kscope"  # of a run of several processes
    return shlex.join([str(run.parent), "--part", run.name] if is_part else [str(run)])


class WatchHit(BaseException, EndedOnPurpose):
    """A watched condition holds. Not an Exception: a program that survives errors must stop here too."""

    def __init__(self, hit: Hit) -> None:
        super().__init__(str(hit))
        self.hit = hit


class Watches:
    """Conditions, each with the kernels that it is for; each is reported once per argument of a kernel."""

    def __init__(self, conditions: Sequence[Condition], wanted: KernelFilter) -> None:
        self._watches = [(each, KernelFilter([each.kernel])) for each in conditions]
        self._wanted = wanted
        self._reported: set[tuple[str, str, str]] = set()

    def wants(self, site: Site) -> bool:
        return self._wanted.wants(site.kernel, site.device)

    def at(self, site: Site) -> list[Condition]:
        """The conditions for this kernel."""
        if not self.wants(site):
            return []
        return [each for each, globs in self._watches if globs.wants(site.kernel, site.device)]

    def is_new(self, condition: str, site: Site, position: int) -> bool:
        """Once: a loop would report it again and again."""
        key = condition, site.kernel.name, site.args[position].name
        is_known = key in self._reported
        self._reported.add(key)
        return not is_known

    def complaints(self) -> list[str]:
        """The globs that no kernel matched, in words."""
        own = [line for _, globs in self._watches if globs.globs != ("*",) for line in globs.complaints()]
        return own + self._wanted.complaints()


def hit_at(site: Site, position: int, **known: Any) -> Hit:
    """A hit, with all that the site itself tells."""
    arg = site.args[position]
    return Hit(
        kernel=site.kernel.name,
        kind=site.kernel.kind,
        arg=arg.name,
        wrapper_name=arg.wrapper_name,
        origin=str(site.origin[0]) if site.origin else "",
        **known,
    )


def as_finding(hit: Hit, kind: str = "watch") -> Finding:
    text = str(hit).removeprefix(f"call {hit.call}, ")  # a finding shows its call itself
    return Finding(kind, text, call=hit.call, kernel=hit.kernel, arg=hit.arg)


def stop_in_python(hit: Hit) -> None:
    raise WatchHit(hit)


def enter_debugger(hit: Hit) -> None:
    """With `hit` at hand, and the program's own frames above."""
    print(f"kernelscope: {hit}", file=sys.stderr)
    try:
        with BUS.mute():
            pdb.Pdb(nosigint=True).set_trace()
            _ = hit  # it stops here; `up` leads to the program, `continue` goes on, `quit` ends the block
    except bdb.BdbQuit:
        raise WatchHit(hit) from None
