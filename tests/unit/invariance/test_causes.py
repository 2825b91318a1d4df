"""What a kernel's text says of why its rows depend on others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelscope.events import Frame
from kernelscope.invariance import verdicts

# What Inductor writes above every Triton kernel has the words, and says nothing of it.
METADATA = """
triton_meta={'device': DeviceProperties(type='cuda', max_threads_per_multi_processor=2048), 'constants': {}}
inductor_meta={'atomic_add_found': False, 'num_load': 1, 'kernel_name': 'triton_per_fused_sum_0'}
"""


@pytest.mark.parametrize(
    ("text", "is_atomic", "is_split"),
    [
        (METADATA, False, False),
        (f"{METADATA} tl.atomic_add(out_ptr0 + x0, tmp1, xmask)", True, False),
        ("atomic_add_vec<float, 0, 4>(out_ptr0, tmp0, tmp1);", True, False),
        ("atomic_add(&out_ptr0[static_cast<int64_t>(tmp4)], tmp5);", True, False),
        ("int max_threads = omp_get_max_threads();", False, True),
        ("float tmp_acc0_arr[8];", False, True),
        (f"{METADATA} def triton_(x, RSPLIT_SIZE : tl.constexpr)", False, True),
    ],
)
def test_only_what_the_kernel_does_counts(text: str, is_atomic: bool, is_split: bool) -> None:
    assert bool(verdicts.ATOMIC.search(text)) == is_atomic
    assert bool(verdicts.SPLIT.search(text)) == is_split


def test_a_kernel_without_a_line_of_the_program_has_that_of_the_generated_code() -> None:
    """As of torch.compile(torch.nn.Linear(…)), whose code is torch's."""
    given = verdicts.KernelVerdict(
        0,
        "extern_kernels.addmm",
        "extern",
        "variant",
        "",
        "forward",
        "0_inference",
        (),
        "/tmp/code.py:54",
        (),
    )
    assert given.line == "/tmp/code.py:54 (generated code)"
    assert replace(given, graph="").line == "an unknown line"
    assert replace(given, origin=(Frame("train.py", 3, "step"),)).line == "train.py:3 in step"
