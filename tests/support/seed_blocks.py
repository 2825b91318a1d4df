"""The code blocks of the two documents whose API DebugMode offers, run with only their import line changed.

A block is text. `run` replaces its import line and its device, provides the names that it leaves open
(`Given`), executes it, and `CHECKS` says what must hold afterwards. The same blocks run on the CPU through
Inductor's C++ kernels, through Triton's interpreter, and on a GPU: see `run_and_check`.

Left out is one block of the first document: an excerpt of a patched torch, which is no program.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

IMPORT = "from kernelscope.debug_mode import DebugMode, _TritonKernelCall"

_IMPORT = re.compile(r"^from torch\.utils\._debug_mode import .*$", re.MULTILINE)

BLOCKS: dict[str, str] = {}

BLOCKS["record outputs"] = """
from torch.utils._debug_mode import DebugMode

with DebugMode() as debug_mode:
    with DebugMode.record_outputs():
        result = my_compiled_model(input_tensor)

# Access recorded outputs
for call in debug_mode.operators:
    if hasattr(call, 'record') and call.record:
        outputs = call.record.get('output')  # List of cloned tensors
"""

BLOCKS["log hashes"] = """
from torch.utils._debug_mode import DebugMode

with DebugMode() as debug_mode:
    with DebugMode.log_tensor_hashes():
        result = my_compiled_model(input_tensor)

# View hashes in debug string
print(debug_mode.debug_string())
# Output includes: [triton] kernel_name(...)  # {'hash': [0.123, 0.456, ...]}
"""

BLOCKS["custom hash"] = '''
def my_hash_fn(tensor):
    """Custom hash: sum of absolute values"""
    return tensor.abs().sum().item()

with DebugMode() as debug_mode:
    with DebugMode.log_tensor_hashes(hash_fn=my_hash_fn):
        result = my_compiled_model(input_tensor)
'''

BLOCKS["hash inputs"] = """
with DebugMode() as debug_mode:
    with DebugMode.log_tensor_hashes(hash_inputs=True):
        result = my_compiled_model(input_tensor)

# Logs will contain both 'hash' (outputs) and 'input_hash' (inputs)
"""

BLOCKS["complete example"] = """
import torch
from torch.utils._debug_mode import DebugMode

@torch.compile
def my_kernel(x, y):
    return x + y * 2

x = torch.randn(1024, device='cuda')
y = torch.randn(1024, device='cuda')

# Example 1: Just record call metadata (no sync needed)
with DebugMode() as debug_mode:
    result = my_kernel(x, y)

print(debug_mode.debug_string())
# Shows: [triton] triton_kernel_name(in_ptr0=..., out_ptr0=...)

# Example 2: Record outputs with automatic sync
with DebugMode() as debug_mode:
    with DebugMode.record_outputs():
        result = my_kernel(x, y)

# Access cloned outputs
for call in debug_mode.operators:
    if hasattr(call, 'record') and 'output' in call.record:
        print(f"Kernel: {call.kernel_name}")
        print(f"Outputs: {call.record['output']}")

# Example 3: Log hashes for debugging
with DebugMode() as debug_mode:
    with DebugMode.log_tensor_hashes(hash_inputs=True):
        result1 = my_kernel(x, y)
        result2 = my_kernel(x, y)  # Should have same hashes

print(debug_mode.debug_string())
"""

BLOCKS["argument tracking"] = """
from torch.utils._debug_mode import DebugMode, _TritonKernelCall

with DebugMode(record_triton_kernels=True, store_original_args=True) as debug_mode:
    result = compiled_function(x, y)

triton_calls = [op for op in debug_mode.operators if isinstance(op, _TritonKernelCall)]

for call in triton_calls:
    print(f"Kernel: {call.kernel_name}")
    print(f"Grid: {call.grid}")

    # Access argument names and values
    if call.arg_names:
        for i, (name, arg) in enumerate(zip(call.arg_names, call.args)):
            if isinstance(arg, torch.Tensor):
                print(f"  {name}: tensor {arg.shape} {arg.dtype}")
            else:
                print(f"  {name}: {arg}")
"""

BLOCKS["input/output detection"] = """
from torch.utils._debug_mode import DebugMode, _TritonKernelCall

with DebugMode(record_triton_kernels=True, store_original_args=True) as debug_mode:
    with DebugMode.log_tensor_hashes():
        result = compiled_function(x, y)

triton_calls = [op for op in debug_mode.operators if isinstance(op, _TritonKernelCall)]

for call in triton_calls:
    print(f"Kernel: {call.kernel_name}")

    # Check which arguments were modified (outputs)
    if call.modified_args:
        print(f"Output arguments:")
        for idx in call.modified_args:
            name = call.arg_names[idx] if call.arg_names else f"arg{idx}"
            print(f"  [{idx}] {name}")

    # Access pre/post hashes
    if call.pre_hashes:
        print(f"Pre-execution hashes: {call.pre_hashes}")
    if call.post_hashes:
        print(f"Post-execution hashes: {call.post_hashes}")
"""

BLOCKS["rendered output"] = """
# The render() method now shows argument names and [OUT] markers
for call in triton_calls:
    print(call.render([]))
"""

BLOCKS["debugging non-determinism"] = """
from torch.utils._debug_mode import DebugMode, _TritonKernelCall

# Run 1
with DebugMode(record_triton_kernels=True, store_original_args=True) as debug_mode1:
    with DebugMode.log_tensor_hashes():
        output1 = compiled_fn(inputs)
        grads1 = torch.autograd.grad(output1, inputs, grad_outputs)

triton_calls1 = [op for op in debug_mode1.operators if isinstance(op, _TritonKernelCall)]

# Run 2 (after reset)
torch._dynamo.reset()
with torch._inductor.utils.fresh_inductor_cache():
    with DebugMode(record_triton_kernels=True, store_original_args=True) as debug_mode2:
        with DebugMode.log_tensor_hashes():
            output2 = compiled_fn(inputs)
            grads2 = torch.autograd.grad(output2, inputs, grad_outputs)

triton_calls2 = [op for op in debug_mode2.operators if isinstance(op, _TritonKernelCall)]

# Compare kernel by kernel to find first divergence
for i, (call1, call2) in enumerate(zip(triton_calls1, triton_calls2)):
    # Compare kernel names and grids
    assert call1.kernel_name == call2.kernel_name
    assert call1.grid == call2.grid

    # Compare input hashes
    for arg_idx in call1.pre_hashes:
        hash1 = call1.pre_hashes[arg_idx]
        hash2 = call2.pre_hashes.get(arg_idx)

        if hash1 != hash2:
            arg_name = call1.arg_names[arg_idx]
            print(f"FIRST DIVERGENCE at kernel {i}: {call1.kernel_name}")
            print(f"  Input argument '{arg_name}' differs")
            print(f"  Hash 1: {hash1}, Hash 2: {hash2}")

            # This is the first place where inputs differ!
            # The non-determinism comes from an earlier kernel
            break

    # Compare output hashes
    for arg_idx in call1.post_hashes:
        hash1 = call1.post_hashes[arg_idx]
        hash2 = call2.post_hashes.get(arg_idx)

        if hash1 != hash2:
            arg_name = call1.arg_names[arg_idx]
            print(f"OUTPUT DIVERGENCE at kernel {i}: {call1.kernel_name}")
            print(f"  Output argument '{arg_name}' differs")
            print(f"  Hash 1: {hash1}, Hash 2: {hash2}")

            # This kernel produces different outputs despite same inputs
            # The kernel itself is non-deterministic!
            break
"""

BLOCKS["attributes of a call"] = """
class _TritonKernelCall:
    kernel_name: str              # Name of the Triton kernel
    grid: tuple                   # (grid_0, grid_1, grid_2)
    args: tuple                   # Actual argument values
    kwargs: dict                  # Keyword arguments
    arg_names: tuple[str, ...]    # Names of arguments

    # Hash tracking (populated when log_tensor_hashes is used)
    pre_hashes: dict[int, float]  # {arg_index: hash_before}
    post_hashes: dict[int, float] # {arg_index: hash_after}
    modified_args: set[int]       # Indices of args that changed (outputs)

    # Logging
    log: dict                     # Additional log information
    record: dict                  # Hook-provided records
"""

BLOCKS["pattern 1: quick output check"] = """
with DebugMode(record_triton_kernels=True) as dm:
    with DebugMode.log_tensor_hashes():
        result = compiled_fn(x)

for call in [op for op in dm.operators if isinstance(op, _TritonKernelCall)]:
    if call.modified_args:
        outputs = [call.arg_names[i] for i in call.modified_args]
        print(f"{call.kernel_name}: outputs {outputs}")
"""

BLOCKS["pattern 2: find non-deterministic kernel"] = """
# Compare two runs and find first divergence
for i, (c1, c2) in enumerate(zip(calls1, calls2)):
    # Check inputs first
    for j in c1.pre_hashes:
        if c1.pre_hashes[j] != c2.pre_hashes[j]:
            print(f"Kernel {i}: Input {c1.arg_names[j]} differs")
            # Previous kernel was non-deterministic
            if i > 0:
                print(f"  -> Issue in kernel {i-1}: {calls1[i-1].kernel_name}")
            break

    # Check outputs
    for j in c1.post_hashes:
        if c1.post_hashes[j] != c2.post_hashes[j]:
            print(f"Kernel {i}: Output {c1.arg_names[j]} differs")
            print(f"  -> THIS kernel is non-deterministic: {c1.kernel_name}")
            break
"""

BLOCKS["pattern 3: audit all kernels"] = """
with DebugMode(record_triton_kernels=True) as dm:
    with DebugMode.log_tensor_hashes():
        result = compiled_fn(x)

for call in [op for op in dm.operators if isinstance(op, _TritonKernelCall)]:
    n_inputs = len([i for i in call.pre_hashes if i not in call.modified_args])
    n_outputs = len(call.modified_args) if call.modified_args else 0
    print(f"{call.kernel_name}: {n_inputs} inputs, {n_outputs} outputs")
"""


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
