"""Bad settings give a clear error at once; odd tensors are described, and the user's program goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import kernelscope

# -- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"values": "bogus"}, r"record\(values='bogus'\).*'off', 'hash'"),
        ({"values": None}, r"record\(values=None\).*'off', 'hash'"),
        ({"values": ["hash"]}, r"record\(values=\['hash'\]\).*'off', 'hash'"),
        ({"ops": "bogus"}, r"record\(ops='bogus'\).*'graph', 'all'"),
        ({"ops": True}, r"record\(ops=True\).*'graph', 'all'"),
        ({"kernel": 3}, r"record\(kernel=….*not.* 3"),
        ({"kernel": ["a", 3]}, r"record\(kernel=….*not.* \('a', 3\)"),
        ({"kernel": None}, r"record\(kernel=….*not.* None"),
        ({"kind": 3}, r"record\(kind=….*not.* 3"),
    ],
)
def test_a_bad_setting_is_said_before_anything_is_installed(
    settings: dict[str, Any], says: str, leftovers: Callable[[], list[str]]
) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        kernelscope.record(**settings)
    assert not leftovers()


def test_unknown_setting() -> None:
    with pytest.raises(TypeError, match="hashes"):
        kernelscope.record(hashes=True)  # type: ignore[call-arg]


def test_bad_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCOPE_STRICT", "maybe")
    with pytest.raises(ValueError, match="KERNELSCOPE_STRICT='maybe': use 0 or 1"):
        kernelscope.record()


def test_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'recrod'.*record"):
        kernelscope.recrod  # noqa: B018


# -- odd tensors ---------------------------------------------------------------------------------------


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2, 2)


def quantized() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.quint8)


def csr() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.eye(2).to_sparse_csr()


def freed() -> torch.Tensor:
    tensor = torch.ones(2, 2)
    tensor.untyped_storage().resize_(0)
    return tensor


ODD: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "meta": (lambda: torch.ones(2, 2, device="meta"), "meta"),
    "fake": (fake, "fake"),
    "coo": (lambda: torch.eye(2).to_sparse(), "sparse_coo"),
    "csr": (csr, "sparse_csr"),
    "quantized": (quantized, "quantized"),
    "mkldnn": (lambda: torch.ones(2, 2).to_mkldnn(), "_mkldnn"),
    "freed": (freed, "freed"),
}
READABLE: dict[str, Callable[[], torch.Tensor]] = {
    "empty": lambda: torch.ones(0, 3),
    "complex": lambda: torch.ones(2, dtype=torch.complex64),
    "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negative view": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "0-d": lambda: torch.tensor(3),
    "bool": lambda: torch.tensor([True, False]),
    "expanded": lambda: torch.ones(1).expand(1000),
    "float8": lambda: torch.ones(2).to(torch.float8_e4m3fn),
}


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """An operator that takes anything and looks at nothing."""
    lib = torch.library.Library("kernelscope_bad_input", "DEF")
    lib.define("look(Tensor x) -> int")
    lib.define("through(Tensor x, Tensor[] more) -> Tensor")
    lib.impl("look", lambda x: 7, "CompositeExplicitAutograd")
    for key in ("CPU", "Meta", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU"):
        lib.impl("look", lambda x: 7, key)
    lib.impl("through", lambda x, more: x.clone(), "CPU")
    lib.impl("through", lambda x, more: torch.empty_like(x), "Meta")
    yield torch.ops.kernelscope_bad_input
    lib._destroy()


@pytest.mark.parametrize("name", [*ODD, *READABLE])
def test_eager_operator_with_an_odd_argument(name: str, library: Any) -> None:
    x = ODD[name][0]() if name in ODD else READABLE[name]()
    with kernelscope.record(values="hash", ops="all") as run:
        assert library.look(x) == 7
    assert str(run)
    if name == "fake":
        assert not run.calls  # a fake tensor computes nothing, so there is nothing to record
        [finding] = run.findings
        assert "operators on fake tensors" in finding.message
        return
    assert not run.findings, run.findings
    (call,) = run.select(kernel="*.look.*")  # after the resolving of a lazy conjugate, where there is one
    assert call.arguments[0].tensor.shape == tuple(x.shape)
    if name in ODD:
        assert ODD[name][1] in call.arguments[0].tensor.unread
        assert not call.pre_hashes
    else:
        assert call.arguments[0].tensor.unread == ""
        assert set(call.pre_hashes) == {0}
        assert call.pre_hashes == call.post_hashes


@pytest.mark.parametrize("name", ["meta", "coo", "csr", "quantized", "mkldnn", "empty", "conjugate"])
def test_eager_arithmetic_on_odd_tensors(name: str) -> None:
    x = ODD[name][0]() if name in ODD else READABLE[name]()
    operate = torch.relu if name == "quantized" else lambda t: t * 2
    with warnings.catch_warnings(action="ignore"):
        bare = operate(x)
        with kernelscope.record(values="hash", ops="all") as run:
            out = operate(x)
    assert out.shape == bare.shape
    assert out.layout == bare.layout
    assert run.calls
    assert not run.findings, run.findings
    assert str(run)


def test_memory_freed_between_two_calls_at_one_site() -> None:
    x = torch.ones(4)
    with kernelscope.record(values="hash", ops="all") as run:
        for step in range(3):
            if step == 1:
                x.untyped_storage().resize_(0)
                view = x.detach()
            elif step == 2:
                x.untyped_storage().resize_(16)
                x.fill_(1)
            torch.ops.aten.is_same_size(x, x)
    assert view.shape == (4,)
    calls = run.select(kernel="aten.is_same_size.default")
    assert [bool(c.pre_hashes) for c in calls] == [True, False, True]
    assert not run.findings, run.findings


def test_thousands_of_arguments() -> None:
    tensors = [torch.full((1,), float(i)) for i in range(3000)]
    with kernelscope.record(values="hash", ops="all") as run:
        out = torch.cat(tensors)
    assert torch.equal(out, torch.arange(3000.0))
    (call,) = run.select(kernel="aten.cat.default")
    assert len(call.arg_names) >= 3001
    assert len(set(call.pre_hashes.values())) == 3000
    assert not run.findings


def test_operator_in_a_compiled_graph_with_odd_arguments(library: Any) -> None:
    compiled = torch.compile(lambda x, more: library.through(x.sin(), more) + 1)
    x, more = torch.ones(2), [torch.ones(0), torch.ones(2, dtype=torch.complex64).conj()]
    bare = compiled(x, more)
    with kernelscope.record(values="hash") as run:
        assert torch.equal(compiled(x, more), bare)
    (call,) = run.select(kernel="*.through.*")
    assert len([a for a in call.arguments if a.tensor is not None]) >= 4
    assert not run.findings, run.findings


def test_odd_tensors_closed_over_by_a_compiled_graph(library: Any) -> None:
    """The custom operator makes and keeps odd tensors of its own; nobody asks them anything."""
    kept: list[torch.Tensor] = []

    def through(x: torch.Tensor, more: list[torch.Tensor]) -> torch.Tensor:
        kept.extend(make() for make, _ in ODD.values())
        return x.clone()

    lib = torch.library.Library("kernelscope_bad_input_2", "DEF")
    lib.define("keep(Tensor x, Tensor[] more) -> Tensor")
    lib.impl("keep", through, "CPU")
    lib.impl("keep", lambda x, more: torch.empty_like(x), "Meta")
    try:
        compiled = torch.compile(lambda x: torch.ops.kernelscope_bad_input_2.keep(x * 3, [x]))
        compiled(torch.ones(2))
        with kernelscope.record(values="hash", ops="all") as run:
            compiled(torch.ones(2))
        assert len(kept) == 2 * len(ODD)
        assert not run.findings, run.findings
    finally:
        lib._destroy()


def test_compiled_graph_on_a_tensor_whose_memory_is_freed_later() -> None:
    """FSDP frees a parameter and brings it back: the graph is the same, the memory is not."""
    compiled = torch.compile(lambda x, w: (x * w).sum())
    x, w = torch.ones(4), torch.ones(4)
    with kernelscope.record(values="hash") as run:
        first = compiled(x, w)
        w.untyped_storage().resize_(0)
        w.untyped_storage().resize_(16)
        w.fill_(1)
        assert torch.equal(compiled(x, w), first)
    assert run.calls[0].pre_hashes == run.calls[1].pre_hashes
    assert not run.findings, run.findings


class Launched:
    """A stand-in for a `JITFunction`: what a probe sees of a user's launch, without a device."""

    src = "def fn(x_ptr, out_ptr, n):\n    tl.store(out_ptr, tl.load(x_ptr) + n)\n"

    def __init__(self) -> None:
        self.fn = lambda x_ptr, out_ptr, n: None
        self.fn.__name__ = "fn"
        self.launches = 0


@pytest.mark.parametrize("name", [*ODD, *READABLE])
def test_user_triton_launch_with_an_odd_argument(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jit = pytest.importorskip("triton.runtime.jit")

    def run_kernel(kernel: Launched, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
        kernel.launches += 1
        return "launched"

    monkeypatch.setattr(jit.JITFunction, "run", run_kernel)
    x = ODD[name][0]() if name in ODD else READABLE[name]()
    kernel = Launched()
    with kernelscope.record(values="hash") as run:
        result = jit.JITFunction.run(kernel, x, torch.zeros(2), 3, grid=(1,), warmup=False)
    assert result == "launched"
    assert kernel.launches == 1
    assert not run.findings, run.findings
    (call,) = run
    assert call.kind == "triton"
    assert call.arg_names == ("x_ptr", "out_ptr", "n")
    assert call.roles == ("in", "out", "scalar")
    assert call.arguments[0].tensor.shape == tuple(x.shape)
    assert bool(call.arguments[0].tensor.unread) == (name in ODD)
    assert str(run)


def test_a_fault_of_the_recorder_is_a_finding_and_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in our own code, the user's result is right and the run says what happened."""
    from kernelscope.probes import bus
    from kernelscope.probes.eager import eager_operators
    from kernelscope.probes.storages import Storages
    from kernelscope.recording import Recording
    from kernelscope.recording.launch_values import LaunchValues

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("planted")

    places: list[tuple[Any, str]] = [
        (Recording, "before"),
        (Recording, "after"),
        (LaunchValues, "before"),
        (LaunchValues, "after"),
        (Storages, "of"),
        (bus, "describe"),
        (eager_operators, "operator_args"),
        (eager_operators, "flatten"),
    ]
    for holder, name in places:
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, broken)
            with kernelscope.record(values="hash", ops="all") as run:
                out = torch.ones(3).sin()
            assert torch.equal(out, torch.ones(3).sin()), name
            assert {f.kind for f in run.findings} == {"recorder-error"}, name
            assert "planted" in str(run.findings[0]), name


def test_a_fault_after_the_first_launch_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the recorder keeps of a launch, so that the next ones need only a note."""
    from kernelscope.probes.python_wrappers import wrapper_launches

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("planted")

    monkeypatch.setattr(wrapper_launches, "seen_launch", broken)
    compiled, x = torch.compile(lambda x: x.sin() + 41), torch.ones(3)
    with kernelscope.record() as run:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), x.sin() + 41)
    assert [call.kind for call in run.calls] == ["cpp"] * 3
    assert [finding.kind for finding in run.findings] == ["recorder-error"]
    assert "planted" in run.findings[0].message
