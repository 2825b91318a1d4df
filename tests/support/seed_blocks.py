"""The code blocks of the two documents whose API DebugMode offers, run with only their import line changed.

A block is text. `run` replaces its import line and its device, provides the names that it leaves open
(`Given`), executes it, and `CHECKS` says what must hold afterwards. The same blocks run on the CPU through
Inductor's C++ kernels, through Triton's interpreter, and on a GPU: see `run_and_check`.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.support.seed_block_texts import BLOCKS

IMPORT = "from kernelscope.debug_mode import DebugMode, _TritonKernelCall"

_IMPORT = re.compile(r"^from torch\.utils\._debug_mode import .*$", re.MULTILINE)


@dataclass
class Given:
    """The names that blocks leave open, and what the checks need to know about the place they run at."""

    device: str
    kind: str  # of the generated kernels: "cpp" or "triton"
    import_line: str
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return {"cpp": "cpp_", "triton": "triton_poi_"}[self.kind]


def given(device: str, kind: str) -> Given:
    """Compiles two tiny functions; compile costs make this something to share between tests."""

    @torch.compile
    def compiled_function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    @torch.compile
    def compiled_fn(inputs: torch.Tensor) -> torch.Tensor:
        return torch.relu(inputs) * 2 + 1

    torch.manual_seed(0)
    inputs = torch.randn(8, 8, device=device, requires_grad=True)
    place = Given(device, kind, IMPORT)
    place.names = {
        "torch": torch,
        "compiled_function": compiled_function,
        "compiled_fn": compiled_fn,
        "my_compiled_model": compiled_fn,
        "x": torch.randn(128, 128, device=device),
        "y": torch.randn(128, 128, device=device),
        "inputs": inputs,
        "input_tensor": inputs.detach(),
        "grad_outputs": torch.ones_like(inputs),
    }
    exec(place.import_line, place.names)
    return place


def text_of(name: str, place: Given) -> str:
    """The block with its import line and its device changed, and nothing else."""
    text = _IMPORT.sub(place.import_line, BLOCKS[name])
    return text.replace("device='cuda'", f"device='{place.device}'")


def run(name: str, place: Given, **names: Any) -> tuple[dict[str, Any], str]:
    """Execute a block; returns its variables and what it printed."""
    space = {"__name__": "seed_block", **place.names, **names}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text_of(name, place), f"seed_blocks/{name}", "exec", dont_inherit=True), space)
    return space, printed.getvalue()


def generated(calls: list[Any], place: Given) -> list[Any]:
    """The calls of generated kernels; there must be some."""
    found = [c for c in calls if getattr(c, "kind", "") == place.kind]
    assert found, f"no {place.kind} call among {calls}"
    return found


# -- what must hold after each block ---------------------------------------------------------------------


def _record_outputs(space: dict[str, Any], printed: str, place: Given) -> None:
    calls = generated(space["debug_mode"].operators, place)
    assert [len(c.record["output"]) for c in calls] == [1] * len(calls)
    assert torch.equal(space["outputs"][-1], space["result"])
    assert space["outputs"][-1].data_ptr() != space["result"].data_ptr()


def _log_hashes(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["debug_mode"].operators, place)
    assert re.search(rf"^ +\[{place.kind}\] {call.kernel_name}\(in_ptr0=t: f32\[8, 8\], .*\)  # ", printed)
    assert printed.rstrip().endswith(f"# {{'hash': [{call.log['hash'][0]}]}}")
    assert call.log["hash"] == [space["result"].abs().double().sum().item()]


def _custom_hash(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["debug_mode"].operators, place)
    assert call.log["hash"] == [space["my_hash_fn"](space["result"])]
    assert call.pre_hashes == {0: space["my_hash_fn"](space["input_tensor"])}


def _hash_inputs(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["debug_mode"].operators, place)
    assert len(call.log["hash"]) == 1
    assert call.log["input_hash"] == [space["input_tensor"].abs().double().sum().item()]
    shown = space["debug_mode"].debug_string()
    assert "'hash': [" in shown
    assert "'input_hash': [" in shown


def _complete_example(space: dict[str, Any], printed: str, place: Given) -> None:
    first, second = generated(space["debug_mode"].operators, place)
    assert first.log["hash"]
    assert first.log == second.log
    assert f"[{place.kind}] {place.prefix}fused_add_mul_0(in_ptr0=t: f32[1024], " in printed
    assert re.search(rf"^Kernel: {place.prefix}fused_add_mul_0\nOutputs: \[tensor\(", printed, re.MULTILINE)


def _argument_tracking(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["triton_calls"], place)
    lines = printed.splitlines()
    assert lines[0] == f"Kernel: {place.prefix}fused_add_0"
    tensor = "tensor torch.Size([128, 128]) torch.float32"
    assert lines[2:5] == [f"  in_ptr0: {tensor}", f"  in_ptr1: {tensor}", f"  out_ptr0: {tensor}"]
    assert {id(call.args[0]), id(call.args[1])} == {id(space["x"]), id(space["y"])}
    if place.kind == "triton":
        assert re.fullmatch(r"Grid: \(\d+, 1, 1\)", lines[1])
        assert lines[5:] == ["  xnumel: 16384"]


def _input_output_detection(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["triton_calls"], place)
    assert "Output arguments:\n  [2] out_ptr0\n" in printed
    assert "Pre-execution hashes: {0: " in printed
    assert set(call.pre_hashes) == {0, 1}  # the output's memory was uninitialised
    assert set(call.post_hashes) == {0, 1, 2}
    assert call.post_hashes[2] == space["result"].abs().double().sum().item()


def _rendered_output(space: dict[str, Any], printed: str, place: Given) -> None:
    lines = printed.splitlines()
    grid = r"\[grid=\(\d+, 1, 1\)\]" if place.kind == "triton" else ""
    assert re.fullmatch(rf"\[{place.kind.capitalize()}\] {place.prefix}fused_add_0{grid}\(", lines[0])
    assert lines[1:3] == ["    in_ptr0=t: f32[128, 128],", "    in_ptr1=t: f32[128, 128],"]
    assert lines[3].rstrip(",") == "    [OUT] out_ptr0=t: f32[128, 128]"
    assert lines[-1].startswith(")  # {'outputs': ['out_ptr0'], 'pre_hashes': {0: ")


def _debugging_non_determinism(space: dict[str, Any], printed: str, place: Given) -> None:
    first, second = (generated(space[f"triton_calls{n}"], place) for n in (1, 2))
    assert [c.phase for c in first] == [c.phase for c in second] == ["forward", "backward"]
    assert all(c.pre_hashes and c.post_hashes for c in first + second)
    assert "DIVERGENCE" not in printed


def _attributes_of_a_call(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = space["triton_calls"]
    for name, wanted in space["_TritonKernelCall"].__annotations__.items():
        origin = getattr(wanted, "__origin__", wanted)
        value = getattr(call, name)
        assert isinstance(value, origin) or (name, value, place.kind) == ("grid", None, "cpp"), name
    assert all(isinstance(i, int) and isinstance(h, float) for i, h in call.post_hashes.items())


def _pattern_1(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["dm"].operators, place)
    assert printed == f"{call.kernel_name}: outputs ['out_ptr0']\n"


def _pattern_2(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["calls1"], place)
    if space["calls1"] is space["calls2"]:
        assert printed == ""
    else:
        assert printed.startswith("Kernel 0: Input in_ptr0 differs\nKernel 0: Output ")
        assert printed.endswith(f"  -> THIS kernel is non-deterministic: {call.kernel_name}\n")


def _pattern_3(space: dict[str, Any], printed: str, place: Given) -> None:
    [call] = generated(space["dm"].operators, place)
    assert printed == f"{call.kernel_name}: 1 inputs, 1 outputs\n"


Check = Callable[[dict[str, Any], str, Given], None]
CHECKS: dict[str, Check] = {
    "record outputs": _record_outputs,
    "log hashes": _log_hashes,
    "custom hash": _custom_hash,
    "hash inputs": _hash_inputs,
    "complete example": _complete_example,
    "argument tracking": _argument_tracking,
    "input/output detection": _input_output_detection,
    "rendered output": _rendered_output,
    "debugging non-determinism": _debugging_non_determinism,
    "attributes of a call": _attributes_of_a_call,
    "pattern 1: quick output check": _pattern_1,
    "pattern 2: find non-deterministic kernel": _pattern_2,
    "pattern 3: audit all kernels": _pattern_3,
}


def open_names(name: str, place: Given) -> dict[str, Any]:
    """What a block takes from an earlier one."""
    if name in ("rendered output", "attributes of a call"):
        space, _ = run("input/output detection", place)
        return {"triton_calls": generated(space["triton_calls"], place)}
    if name.startswith("pattern 2"):
        first, _ = run("pattern 1: quick output check", place)
        second, _ = run("pattern 1: quick output check", place, x=place.names["x"] + 1)
        calls = [generated(space["dm"].operators, place) for space in (first, second)]
        return {"calls1": calls[0], "calls2": calls[1]}
    return {}


def run_and_check(name: str, place: Given) -> None:
    space, printed = run(name, place, **open_names(name, place))
    CHECKS[name](space, printed, place)
