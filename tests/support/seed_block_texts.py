"""The code blocks of the two documents whose API DebugMode offers, as they stand there.

Left out is one block of the first document: an excerpt of a patched torch, which is no program.
"""

from __future__ import annotations

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
