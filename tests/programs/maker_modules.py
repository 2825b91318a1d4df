"""Generated modules of makers whose hardware or package a machine may lack, as torch's templates write them.

What the kernel computes is left out or done by torch: the text that names its arguments is the template's.
"""

# ruff: noqa: E501  # as torch writes them
from __future__ import annotations

from dataclasses import dataclass

_HEAD = """
from ctypes import c_void_p
import torch
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
"""
_TAIL = """
class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
        LAUNCH
        return (buf0, )

runner = Runner(partitions=[])
call = runner.call
"""


@dataclass(frozen=True)
class MakerModule:
    """One maker: its definition in the wrapper, the line that launches, and what is to be seen."""

    maker: str
    definition: str
    launch: str
    expected: tuple[tuple[str, str], ...]  # names and roles

    @property
    def text(self) -> str:
        return f"{_HEAD}\nkernel_0 = {self.definition}\n{_TAIL.replace('LAUNCH', self.launch)}"


_MATMUL = (("arg_A", "in"), ("arg_B", "in"), ("out_ptr0", "out"))

CUTEDSL = MakerModule(
    "cutedsl",
    """async_compile.cutedsl('kernel_0', r'''
import torch
# Kernel function signature: kernel_0
def kernel_0_main(arg_A, arg_B, out_ptr0, stream):
    A = arg_A
    B = arg_B
    out_ptr0.copy_(A @ B)
''')""",
    "kernel_0.run(arg0_1, arg1_1, buf0, stream=None)",
    _MATMUL,
)
FLASH = MakerModule(
    "cutedsl",
    """async_compile.cutedsl('kernel_0', r'''
def flash_attn_fwd(q, k, out, lse):
    out.copy_(q @ k)
    lse.add_(1)

def kernel_0_main(arg_Q, arg_LOGSUMEXP, out_ptr0, stream):
    Q = arg_Q
    LOGSUMEXP = arg_LOGSUMEXP
    output_transposed = out_ptr0.transpose(0, 1)
    flash_attn_fwd(Q, Q.transpose(0, 1), out=output_transposed, lse=LOGSUMEXP)
''')""",
    "kernel_0.run(arg0_1, arg1_1, buf0, stream=None)",
    (("arg_Q", "in"), ("arg_LOGSUMEXP", "inout"), ("out_ptr0", "out")),
)
NV_GEMM = MakerModule(
    "nv_universal_gemm",
    """async_compile.nv_universal_gemm('kernel_0', r'''
import torch
_KERNEL_NAME = 'cutedsl.sm100'
def kernel_0_main(in_ptr0, in_ptr1, out_ptr0, stream=None):
    torch.mm(in_ptr0, in_ptr1, out=out_ptr0)
''')""",
    "kernel_0.run(arg0_1, arg1_1, buf0, stream=None)",
    (("in_ptr0", "in"), ("in_ptr1", "in"), ("out_ptr0", "out")),
)
FLYDSL = MakerModule(
    "flydsl", CUTEDSL.definition.replace("cutedsl", "flydsl"), CUTEDSL.launch, CUTEDSL.expected
)
PALLAS = MakerModule(
    "pallas",
    """async_compile.pallas('kernel_0', r'''
import torch
def kernel_0_main(out_ptr0_alias, in_ptr0, in_ptr1, out_ptr0, stream=None):
    out_ptr0.copy_(in_ptr0 + in_ptr1)
''')""",
    "kernel_0.run(buf0, arg0_1, arg1_1, buf0)",
    (("out_ptr0_alias", "out"), ("in_ptr0", "in"), ("in_ptr1", "in"), ("out_ptr0", "out")),
)
CUTLASS = MakerModule(
    "cuda",
    """async_compile.cuda(r'''
#include "cutlass/cutlass.h"
// When workspace_size is not a nullptr, populates requested workspace_size and returns.
extern "C" {
PT_EXPORT int kernel_0(const float* X, const float* W, float* Y, const int M, const int N, const int K, const int B,
 const int lda, const int ldb, const int ldc, const int ldd, const int X_offset, const int W_offset, const int Y_offset,
 const uint8_t swizzle, size_t* workspace_size, uint8_t* workspace, cudaStream_t stream) {
  return 0;
}
}
''', 'so')""",
    "kernel_0.kernel_0(c_void_p(arg0_1.data_ptr()), c_void_p(arg1_1.data_ptr()), c_void_p(buf0.data_ptr()), "
    "4, 4, 4, 1, 4, 4, 0, 4, 0, 0, 0, 1, None, None, c_void_p(0))",
    (
        ("X", "in"), ("W", "in"), ("Y", "out"), ("M", "scalar"), ("N", "scalar"), ("K", "scalar"), ("B", "scalar"),
        ("lda", "scalar"), ("ldb", "scalar"), ("ldc", "scalar"), ("ldd", "scalar"), ("X_offset", "scalar"),
        ("W_offset", "scalar"), ("Y_offset", "scalar"), ("swizzle", "scalar"), ("workspace_size", "scalar"),
        ("workspace", "scalar"), ("stream", "scalar"),
    ),
)  # fmt: skip
XPU, ROCM = (
    MakerModule(maker, CUTLASS.definition.replace(".cuda(", f".{maker}("), CUTLASS.launch, CUTLASS.expected)
    for maker in ("xpu", "rocm")
)
HALIDE = MakerModule(
    "halide",
    """async_compile.halide(HalideMeta(argtypes=[
HalideInputSpec(ctype='float*', name='in_ptr0', shape=['16L'], stride=['1L'], offset='0', alias_of=None),
HalideInputSpec(ctype='float*', name='in_ptr0_view', shape=['4L', '4L'], stride=['1L', '4L'], offset='0',
                alias_of='in_ptr0'),
HalideInputSpec(ctype='float*', name='in_ptr1', shape=['16L'], stride=['1L'], offset='0', alias_of=None),
HalideInputSpec(ctype='float*', name='out_ptr0', shape=['16L'], stride=['1L'], offset='0', alias_of=None)],
target='host-strict_float', scheduler='Mullapudi2016', scheduler_flags={'parallelism': 2}, cuda_device=None), '''
import halide as hl

@hl.generator(name="kernel")
class Kernel:
    in_ptr0 = hl.InputBuffer(hl.Float(32), 1)
    out_ptr0 = hl.OutputBuffer(hl.Float(32), 1)
''')""",
    "kernel_0(arg0_1, arg1_1, buf0)",
    (("in_ptr0", "in"), ("in_ptr1", "in"), ("out_ptr0", "out")),
)
METAL = MakerModule(
    "metal",
    """async_compile.metal('kernel_0', '''
kernel void kernel_0(
    device float* out_ptr0,
    constant float* in_ptr0,
    constant float* in_ptr1,
    uint xindex [[thread_position_in_grid]]
) {
    out_ptr0[xindex] = in_ptr0[xindex] + in_ptr1[xindex];
}
''', ['utils'])""",
    "kernel_0(buf0, arg0_1, arg1_1, threads=[16])",
    (("out_ptr0", "out"), ("in_ptr0", "in"), ("in_ptr1", "in")),
)
CPP = MakerModule(
    "cpp",
    """async_compile.cpp('''
extern "C" void kernel(const float* in_ptr0, const float* in_ptr1, float* out_ptr0)
{
}
''')""",
    "kernel_0(arg0_1, arg1_1, buf0)",
    (("in_ptr0", "in"), ("in_ptr1", "in"), ("out_ptr0", "out")),
)
UNKNOWN = MakerModule(
    "brand_new",
    "async_compile.brand_new('kernel_0', 'text of an unknown form')",
    "kernel_0.run(arg0_1, arg1_1, buf0)",
    (("arg0", "inout"), ("arg1", "inout"), ("arg2", "out")),  # buf0 is fresh memory
)
MODULES = [CUTEDSL, FLASH, NV_GEMM, FLYDSL, PALLAS, CUTLASS, XPU, ROCM, HALIDE, METAL, CPP, UNKNOWN]
