"""stock_form=True: the listing of torch's own DebugMode, values and compiled code included."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.support.listed_programs import Program, listed
from torch.utils import _debug_mode as stock

from kernelscope import debug_mode as ours


@pytest.fixture
def stocks_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the import is changed in a program."""
    monkeypatch.setenv("KERNELSCOPE_STOCK_FORM", "1")


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[[torch.Tensor], Any]]:
    """Operators of ATen, with and without `out`, among C++ kernels."""

    @torch.compile
    def run(x: torch.Tensor) -> Any:
        y = torch.relu(x @ x + 1)
        return y.sort().values, torch.fft.fft(y).abs() * 2

    torch._dynamo.reset()
    run(torch.ones(2, 2))
    yield run
    torch._dynamo.reset()


LAYER = torch.nn.Linear(4, 2)


def trained(debug_mode: Any) -> None:
    optimizer = torch.optim.Adam(LAYER.parameters(), lr=0.0)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(LAYER(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    optimizer.step()


def of_many_forms(debug_mode: Any) -> None:
    """Views, factories, several results, none, lists, keywords, what a caller gives for a result."""
    x = torch.arange(6.0).view(2, 3)
    torch.var_mean(x, dim=1)
    torch.add(x, x, alpha=2, out=torch.zeros(2, 3))
    torch._foreach_add_([x], 1)
    torch._foreach_add([x, x[0]], 1)
    torch.empty(0)
    x.add_(1).unbind()
    x.max(dim=1)
    x.sum().item()
    x.clone().t().contiguous()


def with_an_error(debug_mode: Any) -> None:
    for wrong in (lambda: torch.ones(2) @ torch.ones(3), lambda: torch.ones(2).view(3)):
        with pytest.raises(RuntimeError), torch.profiler.record_function("fails"):
            wrong()


PROGRAMS: list[Program] = [trained, of_many_forms, with_an_error]
HASHING: dict[str, dict[str, Any]] = {
    "usual": {},
    "inputs": {"hash_inputs": True},
    "tensor": {"hash_fn": "hash_tensor"},
    "two": {"hash_fn": ["norm", "hash_tensor"], "hash_inputs": True},
    "own": {"hash_fn": lambda t: t.numel()},
}


@pytest.mark.usefixtures("stocks_form")
@pytest.mark.parametrize("hashing", HASHING.values(), ids=HASHING)
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_in_stocks_form(program: Program, hashing: dict[str, Any]) -> None:
    mine, theirs = (listed(m, program, hashing) for m in (ours, stock))
    assert mine.debug_string().splitlines() == theirs.debug_string().splitlines()
    for one, other in zip(mine.operators, theirs.operators, strict=True):
        if isinstance(other, stock._OpCall):
            assert one.log == (other.log or None)
            assert str(one.record) == str(other.record)
            assert tuple(one) == tuple(other)
            assert hasattr(one, "args") == hasattr(other, "args")


@pytest.mark.usefixtures("stocks_form")
@pytest.mark.parametrize(
    "flags", [{"record_torchfunction": True}, {"record_ids": True, "record_output": False}]
)
def test_flags_in_stocks_form(flags: dict[str, bool]) -> None:
    # Stock lists the making of a range above the range.
    mine, theirs = (listed(m, of_many_forms, {}, **flags).debug_string() for m in (ours, stock))
    assert mine == theirs


def test_a_tuple_with_names_is_shown_with_its_tensors() -> None:
    mine, theirs = (
        listed(m, lambda _: torch.ones(2, 2).max(dim=1), record_torchfunction=True) for m in (ours, stock)
    )
    assert mine.debug_string() == theirs.debug_string()
    assert "values='t: f32[2]'" in mine.debug_string()


def test_compiled_code_in_stocks_form(compiled: Callable[[torch.Tensor], Any]) -> None:
    def program(_: Any) -> None:
        compiled(torch.ones(2, 2))

    for hashing in (None, {"hash_fn": lambda t: t.numel(), "hash_inputs": True}):
        mine = listed(ours, program, hashing, stock_form=True).debug_string()
        assert mine.splitlines() == listed(stock, program, hashing).debug_string().splitlines()
        assert "aten::mm.out(" in mine
        assert "cpp" not in mine
    usual = listed(ours, program).debug_string()
    assert "[cpp]" in usual
    assert "[extern]" in usual
    only_kernels = listed(ours, program, stock_form=True, record_realtensor=False)
    assert only_kernels.debug_string() == ""


@pytest.mark.usefixtures("stocks_form")
def test_hooks_hear_of_every_operator(compiled: Callable[[torch.Tensor], Any]) -> None:
    def heard(debug_mode: Any) -> list[Any]:
        with (
            debug_mode.DebugMode() as mode,
            debug_mode.DebugMode.dispatch_hooks(
                record_hook=lambda func, types, args, kwargs, result: {"operator": str(func)},
                log_hook=lambda func, types, args, kwargs, result: {"arguments": len(args)},
                pre_log_hook=lambda func, types, args, kwargs, call: {"settings": len(kwargs)},
            ),
        ):
            torch.ones(2, 2).t()
            torch.empty(0)
            compiled(torch.ones(2, 2))
        return [(c.log, c.record, str(c)) for c in mode.operators]

    assert heard(ours) == heard(stock)
    assert len(heard(ours)) > 5


def test_hooks_hear_of_views_without_the_setting() -> None:
    with (
        ours.DebugMode() as mode,
        ours.DebugMode.dispatch_hooks(log_hook=lambda func, *rest: {"of": func.__name__}),
    ):
        torch.ones(2, 2).t()
    assert mode.debug_string().splitlines()[1].endswith("->  t: f32[2, 2]  # {'of': 't.default'}")


@pytest.mark.usefixtures("stocks_form")
def test_mismatches_in_stocks_form() -> None:
    def of(debug_mode: Any, scale: float) -> list[Any]:
        with debug_mode.DebugMode() as mode, debug_mode.DebugMode.log_tensor_hashes(hash_inputs=True):
            x = torch.ones(2, 2) * scale
            torch.var_mean(x.t())
            torch.cat([x, x])
        return list(mode.logs)

    def found(debug_mode: Any, *, inputs: bool) -> list[Any]:
        check = debug_mode.DebugMode.check_hash_mismatches
        entries = check(of(debug_mode, 1), of(debug_mode, 2), compare_inputs=inputs)
        return sorted(
            ({k: v for k, v in e.items() if k != "difference"} for e in entries),
            key=lambda e: str(list(e.items())),
        )

    for inputs in (False, True):
        assert found(ours, inputs=inputs) == found(stock, inputs=inputs)
    check = ours.DebugMode.check_hash_mismatches
    with pytest.raises(ValueError, match="Log lengths don't match"):
        check(of(ours, 1), of(ours, 1)[1:])
    assert check(of(ours, 1), of(ours, 1)[1:], align=True)


def test_a_saved_listing_has_its_values() -> None:
    with ours.DebugMode() as mode, ours.DebugMode.log_tensor_hashes(hash_inputs=True):
        torch.add(torch.ones(2), torch.ones(2), alpha=2)
        torch._foreach_add([torch.ones(2)], 1)
        torch.var_mean(torch.ones(2))
    file = io.StringIO()
    ours.DebugMode.save_logs(mode.logs, file)
    read = ours.DebugMode.load_logs(io.StringIO(file.getvalue()))
    for entry, call in zip(read, mode.logs, strict=True):
        assert entry.log == {k: v for k, v in (call.log or {}).items() if k in ("hash", "input_hash")}
    assert [entry.log["hash"] for entry in read if entry.log][-1] == (0.0, 1.0)


@pytest.fixture
def fake_group() -> Iterator[Any]:
    from torch.distributed.tensor import DeviceMesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())  # type: ignore[no-untyped-call]
    yield DeviceMesh("cpu", list(range(4)))
    dist.destroy_process_group()


def test_redistributions_in_stocks_form(fake_group: Any) -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    def program(_: Any) -> None:
        x = DTensor.from_local(torch.ones(2, 4), fake_group, [Shard(0)], run_check=False)
        w = DTensor.from_local(torch.ones(1, 4), fake_group, [Shard(0)], run_check=False)
        (x @ w).sum()
        x.redistribute(fake_group, [Replicate()])
        torch._dynamo.reset()
        # What is traced is not listed, only what runs.
        torch.compile(lambda y: (y * 2).redistribute(fake_group, [Replicate()]), backend="aot_eager")(x)

    hashing = {"hash_inputs": True}
    mine, theirs = (listed(m, program, hashing, **f) for m, f in ((ours, {"stock_form": True}), (stock, {})))
    assert mine.debug_string().splitlines() == theirs.debug_string().splitlines()
    pairs = [
        pair
        for pair in zip(mine.operators, theirs.operators, strict=True)
        if isinstance(pair[1], stock._RedistributeCall)
    ]
    assert len(pairs) > 2
    for one, other in pairs:
        assert next(iter(one)) == next(iter(other))
        assert (one.transform_info_str, one.is_explicit) == (other.transform_info_str, other.is_explicit)
        if other.transform_info_str is not None:
            assert tuple(one) == tuple(other)


def test_a_collective_has_the_hash_of_what_was_awaited(fake_group: Any) -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    x = DTensor.from_local(torch.ones(3), fake_group, [Shard(0)], run_check=False)
    with ours.DebugMode() as mode, ours.DebugMode.log_tensor_hashes():
        x.redistribute(fake_group, [Replicate()])
    [gather] = mode.run.select(kernel="_c10d_functional.all_gather_into_tensor.default")
    assert gather.log["hash"] == 12.0


def test_our_own_work_at_a_step_is_not_listed(fake_group: Any) -> None:
    # Of a process with a group, a recording notes the states of its generators at each step.
    mine, theirs = (listed(m, trained).debug_string() for m in (ours, stock))
    assert mine.splitlines() == theirs.splitlines()


def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCOPE_STOCK_FORM", "yes")
    with pytest.raises(ValueError, match=re.escape("KERNELSCOPE_STOCK_FORM='yes': use 0 or 1")):
        ours.DebugMode()
