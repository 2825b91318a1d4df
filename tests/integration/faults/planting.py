"""Putting a mistake into what Inductor generates, and proving that it is really there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope import ShadowResult

MARK = "planted"
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(.*?^'''.*?\)$", re.MULTILINE | re.DOTALL)


@dataclass
class Canary:
    """What was changed; a fault that is not in the code proves nothing."""

    hits: int = 0
    kernels: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)  # the text of the modules that were loaded with it

    def assert_planted(self) -> None:
        assert self.hits, "the fault was not planted: its pattern is not in the generated code"
        assert all(MARK in text for text in self.loaded), "what was loaded does not have the fault"


Plant = Callable[[], AbstractContextManager[Canary]]


@dataclass(frozen=True)
class Fault:
    """One mistake, where it belongs, and what must be said of it."""

    name: str
    family: str
    program: Callable[[], None]
    plant: Plant
    node: str  # the FX node, or with a leading "=" the kernel's argument, that must be named
    kernel: str = ""  # a pattern; empty: the kernel whose code was changed
    phase: str = "forward"
    verdict: str = "wrong-kernel"
    config: dict[str, Any] = field(default_factory=dict)
    finest: str = (
        ""  # what bisect must name where that is no kernel and no pass: no finer axis can express it
    )

    def __str__(self) -> str:
        return f"{self.family}-{self.name}".replace(" ", "-")


def in_kernel(pattern: str, replacement: str, *, kernel: str = "", count: int = 1) -> Plant:
    """Change the text of the first kernel that has the pattern."""

    def change(text: str, canary: Canary) -> str:
        def changed(found: re.Match[str]) -> str:
            if canary.kernels or not re.search(kernel, found[1]):
                return found[0]
            made, hits = re.subn(pattern, replacement, found[0], count=count)
            if hits:
                canary.hits += hits
                canary.kernels.append(found[1])
            return made

        before, made = canary.hits, _KERNEL.sub(changed, text)
        return made + (f"\n# {MARK}\n" if canary.hits > before else "")

    return lambda: rewriting(change)


def in_call(pattern: str, replacement: str) -> Plant:
    """Change the Python that launches the kernels."""

    def change(text: str, canary: Canary) -> str:
        start = text.index("def call(")
        made, hits = re.subn(pattern, replacement, text[start:], count=0 if canary.hits else 1)
        canary.hits += hits
        return text[:start] + made + (f"\n# {MARK}\n" if hits else "")

    return lambda: rewriting(change)


@contextmanager
def rewriting(change: Callable[[str, Canary], str]) -> Iterator[Canary]:
    canary, original = Canary(), GraphLowering._compile_to_module_lines

    def compile_lines(self: Any, code: Any) -> Any:
        before = canary.hits
        code.value = change(code.value, canary)
        module = original(self, code)
        if canary.hits > before:
            canary.loaded.append(Path(module.__file__).read_text())
        return module

    GraphLowering._compile_to_module_lines = compile_lines
    try:
        yield canary
    finally:
        GraphLowering._compile_to_module_lines = original


def replacing(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """Replace a function of torch's by a wrong one, which counts how often it was used."""

    @contextmanager
    def plant() -> Iterator[Canary]:
        canary, original = Canary(), getattr(owner, name)
        wrong = make(original)

        def counted(*args: Any, **kwargs: Any) -> Any:
            canary.hits += 1
            return wrong(*args, **kwargs)

        setattr(owner, name, counted)
        try:
            yield canary
        finally:
            setattr(owner, name, original)

    return plant


def configured(name: str, make: Callable[[Canary], Any]) -> Plant:
    """Set one of Inductor's settings to something of ours: a custom pass."""

    @contextmanager
    def plant() -> Iterator[Canary]:
        canary = Canary()
        with torch._inductor.config.patch({name: make(canary)}):
            yield canary

    return plant


def look_for(fault: Fault) -> tuple[ShadowResult, Canary]:
    """Run the program with the fault in it, with an empty cache of its own."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with ExitStack() as stack:
        stack.enter_context(fresh_cache())
        stack.enter_context(torch._inductor.config.patch({"cpp.simdlen": 1} | fault.config))
        canary = stack.enter_context(fault.plant())
        result = stack.enter_context(kernelscope.shadow())
        fault.program()
    torch._dynamo.reset()
    canary.assert_planted()
    return result, canary


def assert_named(fault: Fault, result: ShadowResult, canary: Canary) -> None:
    """The kernel, the output, and nothing else."""
    assert result, f"not found: {fault}\n{result}"
    culprit = result.culprit
    assert culprit is not None
    told = f"{fault}\n{result}"
    if fault.kernel:
        assert re.search(fault.kernel, culprit.kernel_name), told
    else:
        assert culprit.kernel_name == canary.kernels[0], told
    if fault.node.startswith("="):
        assert culprit.argument == fault.node[1:], told
    else:
        assert culprit.node == fault.node, told
    assert culprit.verdict == fault.verdict, told
    if fault.phase:
        assert culprit.phase == fault.phase, told
    assert {c.kernel_name for c in result} == {culprit.kernel_name}, told
