"""The code blocks of "Debugging Inductor", as docs/guide.md walks through them, word by word.

`SETTINGS` are blocks that set configs: a compiled program must work under each. `COMMANDS` are lines of a
shell, each run on a script. `REFUSED` is what stock torch itself does not run, with what it says.
"""

from __future__ import annotations

SETTINGS: dict[str, str] = {}

SETTINGS["viewing generated code"] = """
import torch._inductor.config as config

# Print generated Triton/C++ code
config.debug = True

# Or use environment variable
# TORCH_COMPILE_DEBUG=1 python script.py
"""

SETTINGS["codegen errors"] = """
import torch._inductor.config as config

# Get detailed error information
config.debug = True
config.verbose_progress = True

# Disable specific optimizations to isolate the issue
config.pattern_matcher = False  # Disable pattern matching
config.max_autotune = False     # Disable autotuning
"""

SETTINGS["checking fusion"] = """
import torch._inductor.config as config

# Log fusion decisions
# TORCH_LOGS="+inductor" python script.py

# See what kernels are generated
config.debug = True  # Look at output_code.py
"""

SETTINGS["autotuning"] = """
import torch._inductor.config as config

# Enable max autotuning (slower compile, faster runtime)
config.max_autotune = True
config.max_autotune_gemm = True

# Cache autotuning results
config.autotune_local_cache = True
config.autotune_remote_cache = True  # If available
"""

SETTINGS["Triton-specific issues"] = """
import torch._inductor.config as config

# Fall back to non-Triton code
config.triton.cudagraphs = False

# Debug Triton kernel issues
config.triton.debug_sync_kernel = True
config.triton.debug_sync_graph = True

# Check for Triton version issues
import triton
print(triton.__version__)
"""

SETTINGS["CPU codegen issues"] = """
import torch._inductor.config as config

# Force C++ backend
config.cpp_wrapper = True

# Debug C++ code
config.debug = True  # Generated code in output_code.cpp

# Disable vectorization to isolate issues
config.cpp.simdlen = 1
"""

SETTINGS["useful configurations"] = """
import torch._inductor.config as config

# Debugging
config.debug = True                    # Write debug files
config.verbose_progress = True         # Log compilation progress
config.trace.enabled = True            # Enable tracing

# Optimization control
config.pattern_matcher = True          # Enable pattern matching (default)
config.max_autotune = False            # Max autotuning (slower compile)
config.freezing = False                # Freeze weights into graph

# Triton settings
config.triton.cudagraphs = True        # Use CUDA graphs
config.triton.unique_kernel_names = True  # Unique names for profiling

# CPU settings
config.cpp.threads = -1                # Auto-detect threads
config.cpp.simdlen = None              # Auto-detect SIMD width
"""

SETTINGS["kernel-level profiling"] = """
import torch._inductor.config as config
config.triton.unique_kernel_names = True  # Makes kernels identifiable in profiler
"""

COMPARING = """
import torch

def check_correctness(fn, args):
    # Eager result
    eager_result = fn(*args)

    # Compiled result
    compiled_fn = torch.compile(fn)
    compiled_result = compiled_fn(*args)

    # Compare
    torch.testing.assert_close(eager_result, compiled_result)
    print("Results match!")

# Or use the built-in minifier for bug reports
# TORCHDYNAMO_REPRO_AFTER="aot" python script.py
"""

COMMANDS = [
    'TORCH_LOGS="+inductor" python script.py',
    "TORCH_COMPILE_DEBUG=1 python script.py",
    'TORCH_LOGS="+output_code" python script.py',
    'TORCH_LOGS="+fusion" python script.py',
    'TORCH_LOGS="+schedule" python script.py',
    "TORCHINDUCTOR_TRITON_CUDAGRAPHS=0 python script.py",
    "TORCHINDUCTOR_FREEZING=0 python script.py",
    'TORCHDYNAMO_REPRO_AFTER="aot" python script.py',
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=2 python script.py",
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=3 python script.py",
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=1 python script.py",
    'AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT="aoti_torch_cuda_addmm_out" '
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=2 python script.py",
]

PROFILING = """
import torch
from torch.profiler import profile, ProfilerActivity

compiled_fn = torch.compile(fn)

with profile(activities=[ProfilerActivity.CUDA]) as prof:
    compiled_fn(x)

print(prof.key_averages().table(sort_by="cuda_time_total"))
"""

LOADING = """
tensor = torch.load("before_launch_aoti_torch_cuda_addmm_out_buf1_cuda:0.pt", weights_only=True)
print(tensor)
"""

MINIFIER_AFTER_INDUCTOR = 'TORCHDYNAMO_REPRO_AFTER="inductor" python script.py'

# What stock does not run: the block, and what it says. docs/guide.md has our command for the same job.
REFUSED = {
    MINIFIER_AFTER_INDUCTOR: "AssertionError: repro_after must be 'dynamo', 'aot', or None, got 'inductor'",
    PROFILING: "AssertionError: No activities specified for the profiler",  # without a GPU
    LOADING: "FileNotFoundError",  # the printer saved nothing of that name
}
