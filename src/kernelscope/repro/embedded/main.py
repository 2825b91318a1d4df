"""The end of every script: runs what the script defines, and compares it with the recording and eager."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from typing import Any

import torch

from .rounding import Reference, difference
from .tensors import arguments, recorded_result, tensors_beside


def litter(found: dict[str, Any]) -> None:
    """Leave NaN in memory that is free now, to expose a kernel that reads uninitialised memory."""
    sizes = {t.numel() * t.element_size() for t in found.values()} | {16 << n for n in range(10)}
    pieces = [torch.full((size,), 0xFF, dtype=torch.uint8) for size in sizes for _ in range(64)]
    del pieces


@contextlib.contextmanager
def filled_memory() -> Any:
    """Memory that a compiled graph allocates holds NaN at first, for the same reason."""
    guards = torch._C._dynamo.guards
    names = [name for name in ("_empty_strided_cpu", "_empty_strided_cuda") if hasattr(guards, name)]
    plain = {name: getattr(guards, name) for name in names}

    def filling(allocate: Any) -> Any:
        def empty(*given: Any) -> torch.Tensor:
            made: torch.Tensor = allocate(*given)
            whole = torch.empty(0, dtype=torch.uint8, device=made.device).set_(made.untyped_storage())
            whole.fill_(0xFF)
            return made

        return empty

    for name in names:
        setattr(guards, name, filling(plain[name]))
    try:
        yield
    finally:
        for name in names:
            setattr(guards, name, plain[name])


def named(returned: Any, names: list[str], given: list[Any]) -> dict[str, Any]:
    """The tensors that a launch returned, but for those that it was given."""
    flat = torch.utils._pytree.tree_leaves(returned)
    own = {id(value) for value in given}
    return dict(
        zip(names, [t for t in flat if isinstance(t, torch.Tensor) and id(t) not in own], strict=False)
    )


def settle(kernel: Any, config: dict[str, Any]) -> None:
    """Leave a Triton kernel of Inductor's only the config that was recorded."""
    settings = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    wanted = {k: v for k, v in config.items() if k not in settings}

    def fits(each: Any) -> bool:
        return all(each.kwargs.get(k) == v for k, v in wanted.items() if k in each.kwargs) and all(
            getattr(each, k, None) == config[k] for k in settings if k in config and k != "maxnreg"
        )

    # Once they are compiled for a GPU there are launchers in place of the configs.
    fitting = [each for each in kernel.configs or () if fits(each)]
    compiled = [each for each in kernel.launchers if fits(each.config)]
    if fitting:
        kernel.configs = fitting[:1]
    elif compiled:
        kernel.launchers = compiled[:1]
    else:
        print(f"note: {kernel} does not have the recorded config {config}; autotuning selects one")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return a.shape == b.shape and bool(
        torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
    )


def check(
    script: str, launch: Any, eager: Any, given: dict[str, Any], recorded: dict[str, Any], notes: Any = ()
) -> int:
    """Run it once and print what is wrong. Returns the exit status of the script."""
    for note in notes:
        print(f"note: {note}")
    tensors = tensors_beside(script, given, recorded)
    found = arguments(given, tensors)
    context = {k: v for k, v in given.items() if v.get("role") == "context"}
    reference = Reference(eager, lambda: arguments(given, tensors))
    before = {n: found[n].clone() for n, v in given.items() if v["role"] == "in" and not shared(n, given)}
    torch.manual_seed(0)
    litter(found)
    try:
        with filled_memory():
            returned = launch(**{n: t for n, t in found.items() if n not in context})
    except Exception as error:
        if isinstance(error, AttributeError) and "_OpNamespace" in str(error):
            print(f"{error}: import the module that registers it at the top of this script")
            return 2
        traceback.print_exc()
        print(f"FAIL the launch raised {type(error).__name__}")
        return 1
    made = found | returned
    problems = 0
    for name, about in given.items():
        if about.get("uninitialised") and not shared(name, given):
            problems += 1
            print(f"FAIL {name}: the kernel reads uninitialised memory, which holds NaN here")
    for name, value in before.items():
        if not same_bits(value, made[name]):
            problems += 1
            print(f"FAIL {name}: the kernel wrote to an argument that it declares to read only")

    for name, about in recorded.items():
        kept = recorded_result(tensors[about["saved"]], about)
        problems += differs(name, made[name], kept, "the recording", kept, reference)
        if about.get("watched"):
            read = [n for n, v in given.items() if v["role"] != "out" and not v.get("uninitialised")]
            inputs = arguments(given, tensors)
            problems += holds_new(name, made[name], [inputs[n] for n in read])
    for name, value in reference.right.items():
        own = made[name].reshape(value.shape) if made[name].numel() == value.numel() else made[name]
        problems += differs(name, own, value, "eager", reference.exact.get(name, value), reference)
    if not recorded and not reference.right:
        print("inconclusive: there are neither recorded results nor FX nodes to compare with")
        return 2
    if eager is not None and not reference.right and not problems:
        print("inconclusive: eager failed, so the results were compared with the recording only")
        return 2
    print("FAILED" if problems else "passed")
    return 1 if problems else 0


def differs(name: str, made: Any, other: Any, what: str, exact: Any, reference: Reference) -> bool:
    """Print how a result compares with another; `exact` is the other, or better."""
    if made.dtype == other.dtype and same_bits(made, other):
        print(f"ok   {name}: matches {what} bit by bit")
        return False
    wrong = difference(made, other, exact, reference.allowed(name))
    good, bad = f"ok   {name}: matches {what} up to rounding", f"FAIL {name}: differs from {what}: {wrong}"
    print(bad if wrong else good)
    return bool(wrong)


def holds_new(name: str, made: Any, inputs: list[Any]) -> bool:
    """Print whether a result has NaN or infinities, which the recording was stopped for, but no input has."""
    found = []
    for kind, test in (("NaN", torch.isnan), ("inf", torch.isinf)):
        number = int(test(made).sum())
        if number and not any(bool(test(value).any()) for value in inputs):
            found.append(f"{number} {kind}")
    if found:
        print(f"FAIL {name}: has {' and '.join(found)}, and no input has any: the kernel makes it")
    return bool(found)


def shared(name: str, given: dict[str, Any]) -> bool:
    """Whether an argument that the kernel writes uses the same memory."""
    key = given[name].get("memory", name)
    return any(v.get("memory", n) == key and v["role"] not in ("in", "context") for n, v in given.items())


def seconds(function: Any, device: str) -> float:
    """The least of several rounds, each long enough to be measured."""

    def wait() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    function()
    wait()
    times, rounds = 1, []
    while True:
        wait()
        start = time.perf_counter()
        for _ in range(times):
            function()
        wait()
        taken = time.perf_counter() - start
        if taken > 0.02 or times >= 1 << 16:
            rounds.append(taken / times)
            if len(rounds) == 5:
                return min(rounds)
        else:
            times *= 4


def benchmark(script: str, launch: Any, eager: Any, given: dict[str, Any]) -> int:
    """The kernel beside eager, and beside Inductor with other settings."""
    import torch._inductor.config as config

    tensors = tensors_beside(script, given)
    found = arguments(given, tensors)
    device = next((str(v["device"]) for v in given.values() if "device" in v), "cpu")
    own = {n: t for n, t in found.items() if given[n].get("role") != "context"}
    rows = [("this kernel", seconds(lambda: launch(**own), device))]
    if eager is None:
        print("eager is not timed: the FX nodes were not recorded")
    else:
        rows.append(("eager", seconds(lambda: eager(**found), device)))
        settings: list[dict[str, Any]] = [{}, {"max_autotune": True}, {"epilogue_fusion": False}]
        settings += [{"cpp.simdlen": 1}] if device == "cpu" else [{"coordinate_descent_tuning": True}]
        for changed in settings:
            torch._dynamo.reset()
            name = "Inductor" + "".join(f", {key}={value}" for key, value in changed.items())
            with config.patch(changed), contextlib.redirect_stderr(sys.stderr):
                try:
                    compiled = torch.compile(eager)
                    rows.append((name, seconds(lambda compiled=compiled: compiled(**found), device)))
                except Exception as error:
                    print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    least = rows[0][1]
    for name, taken in rows:
        print(f"{taken * 1e6:12.2f} µs  {taken / least:6.2f}×  {name}")
    return 0
