"""What every script of `kernelscope repro` ends with: it needs torch, and nothing else.

This file's text goes into the script as it is. It reads the tensors beside the script, runs what the script
defines, and compares what came out with what was recorded and with eager.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32)
WIDE: dict[torch.dtype, torch.dtype] = dict.fromkeys(NARROW, torch.float64)
LOOSE = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7, torch.complex128: 1e-7}
LOOSE |= {dtype: 0.13 for dtype in WIDE if dtype.itemsize == 1}
WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


def tensors_beside(script: str, *tables: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors in the safetensors file beside the script, as bytes; none where the script needs none."""
    if not any("saved" in about for table in tables for about in table.values()):
        return {}
    path = Path(script).with_suffix(".safetensors")
    if not path.exists():
        print(f"{path} is missing: it has the inputs, and belongs beside the script")
        sys.exit(2)
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    found = {}
    for name, about in head.items():
        if name != "__metadata__":
            first, last = (8 + size + place for place in about["data_offsets"])
            flat = (
                torch.frombuffer(data, dtype=torch.uint8, offset=first, count=last - first)
                if last > first
                else torch.empty(0, dtype=torch.uint8)
            )
            found[name] = flat.clone()
    return found


def arguments(given: dict[str, dict[str, Any]], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The arguments as the launch found them: same layout, and same memory where two of them shared it."""
    made: dict[str, Any] = {}
    memories: dict[Any, torch.Tensor] = {}
    sizes: dict[Any, int] = {}
    for name, about in given.items():
        dtype, key = getattr(torch, about["dtype"]), about.get("memory", name)
        pairs = zip(about["shape"], about["stride"], strict=True)
        last = about.get("offset", 0) + sum((n - 1) * s for n, s in pairs) + 1
        sizes[key] = max(sizes.get(key, 0), last * dtype.itemsize)
    for name, about in given.items():
        dtype, key = getattr(torch, about["dtype"]), about.get("memory", name)
        device = about.get("device", "cpu")
        if key not in memories:
            memories[key] = torch.full((-(-sizes[key] // 64) * 64,), 0xFF, dtype=torch.uint8, device=device)
        storage = memories[key].untyped_storage()
        tensor = torch.empty(0, dtype=dtype, device=device)
        tensor = tensor.set_(storage, about.get("offset", 0), tuple(about["shape"]), tuple(about["stride"]))
        if "saved" in about:
            fill(tensor, contents(tensors[about["saved"]], about))
        elif "values" in about:
            fill(tensor, torch.tensor(about["values"], dtype=dtype).reshape(tensor.shape))
        elif "seed" in about:
            fill(tensor, generated(about).to(dtype))
        made[name] = base(tensor, *about["base"]) if "base" in about else tensor
    return made


def fill(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Copy, also into an expanded tensor, which has many elements in one place."""
    place, taken = tensor, values
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            place, taken = place.narrow(dim, 0, 1), taken.narrow(dim, 0, 1)
    place.copy_(taken)
    return tensor


def contents(raw: torch.Tensor, about: dict[str, Any]) -> torch.Tensor:
    found: torch.Tensor = raw.view(getattr(torch, about["dtype"]))
    return found.reshape(tuple(about["shape"]))


def recorded_result(raw: torch.Tensor, about: dict[str, Any]) -> torch.Tensor:
    """What was recorded of a result; of some the buffer that it is a view of."""
    if "stride" not in about:
        return contents(raw, about)
    flat = raw.view(getattr(torch, about["dtype"]))
    return flat.as_strided(tuple(about["shape"]), tuple(about["stride"]))


def generated(about: dict[str, Any]) -> torch.Tensor:
    """Numbers with the recorded statistics: the values themselves were not kept."""
    generator = torch.Generator().manual_seed(about["seed"])
    low, high, shape = about["min"], about["max"], tuple(about["shape"])
    dtype = getattr(torch, about["dtype"])
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(int(low), min(int(high), (1 << 63) - 2) + 1, shape, generator=generator)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    made: torch.Tensor = (drawn * about["std"] + about["mean"]).clamp(low, high).flatten()
    places, first = torch.randperm(made.numel(), generator=generator), 0
    for value, count in about.get("special", {}).items():  # as many zeros, NaNs and infinities as there were
        made[places[first : first + count]] = float(value)
        first += count
    if dtype.is_complex:  # its statistics are those of the absolute values
        turn = torch.rand(made.shape, generator=generator, dtype=torch.float64)
        made = torch.polar(made, turn * 2 * math.pi)
    return made.reshape(shape)


def base(view: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """The whole buffer that an argument is another view of."""
    return view.as_strided(shape, stride, view.storage_offset())


def litter(found: dict[str, Any]) -> None:
    """Leave NaN in memory that is free now: a kernel that reads what it was not given then shows it."""
    sizes = {t.numel() * t.element_size() for t in found.values()} | {16 << n for n in range(10)}
    pieces = [torch.full((size,), 0xFF, dtype=torch.uint8) for size in sizes for _ in range(64)]
    del pieces


@contextlib.contextmanager
def filled_memory() -> Any:
    """What a compiled graph allocates holds NaN at first, for the same reason."""
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
        print(f"note: no config of {kernel} is {config}; autotuning chooses again")


class Wide(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Casts to a float that has less than 64 bits are casts to float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.view.dtype:
            raise NotImplementedError("bits have no float64")
        widen = torch.utils._pytree.tree_map
        args, kwargs = widen(
            lambda p: WIDE.get(p, p) if isinstance(p, torch.dtype) else p, (args, kwargs or {})
        )
        return func(*args, **kwargs)


def in_float64(function: Any, given: dict[str, Any], jitter: float = 0.0) -> dict[str, Any] | None:
    """What eager computes with 64 bits; with `jitter`, from inputs that are off by so much."""
    generator = torch.Generator().manual_seed(0)

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in WIDE:
            return value
        exact = value.to(WIDE[value.dtype])
        if jitter:
            noise = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device)
            exact = exact * (1 + (2 * noise - 1) * jitter)
        made = torch.empty_strided(value.shape, value.stride(), dtype=exact.dtype, device=value.device)
        return fill(made, exact)

    torch.manual_seed(0)
    try:
        with Wide():  # type: ignore[no-untyped-call]
            return dict(function(**{name: wide(value) for name, value in given.items()}))
    except Exception:
        return None


def allowance(right: Any, exact: Any, shaken: Any, reach: float) -> Any:
    """What rounding explains: at most, and on average; `reach` numbers go into one.

    Of integers and truth values, which elements: those that come out otherwise in float64, or when shaken.
    """
    if right is None or exact is None:
        return None
    if not (right.is_floating_point() or right.is_complex()):
        others = [part.reshape(right.shape) for part in (exact, shaken) if part is not None]
        return sum((part != right for part in others), torch.zeros_like(right, dtype=torch.bool)).cpu()
    r, e = numbers(right), numbers(exact.reshape(right.shape))
    s = e if shaken is None else numbers(shaken.reshape(right.shape))
    fine = torch.isfinite(r) & torch.isfinite(e) & torch.isfinite(s)
    if not bool(fine.any()):
        return None
    r, e, s = r[fine], e[fine], s[fine]
    compute = torch.finfo(torch.float32 if right.dtype in WIDE else torch.float64)
    parts = [(r - e).abs(), (s - e).abs(), compute.eps * math.sqrt(reach) * e.abs()]
    most = 8 * sum(float(part.max()) for part in parts) + compute.tiny
    usual = 4 * sum(float(rms(part)) for part in parts) + compute.tiny
    return most, usual


def difference(made: torch.Tensor, other: torch.Tensor, exact: Any, allowed: Any) -> str:
    """What is wrong with `made`, more than rounding explains; `exact` is `other`, or better."""
    if made.dtype != other.dtype:
        return f"it is {made.dtype} and should be {other.dtype}"
    if made.numel() != other.numel():
        return f"it has the shape {list(made.shape)} and should have {list(other.shape)}"
    made, other = made.detach().cpu(), other.detach().cpu().reshape(made.shape)
    if not (made.is_floating_point() or made.is_complex()):
        wrong = made != other
        if allowed is not None:
            wrong &= ~allowed.reshape(made.shape)
        return told(made, other, wrong) if bool(wrong.any()) else ""
    m, o = numbers(made), numbers(other)
    if allowed is None:
        loose = LOOSE.get(made.dtype, 1.3e-6)
        wrong = ~torch.isclose(m, o, rtol=loose, atol=1e-5 if loose < 1e-3 else loose, equal_nan=True)
        return told(made, other, wrong) if bool(wrong.any()) else ""
    e = numbers(exact.reshape(made.shape))
    odd = (torch.isnan(m) != torch.isnan(o)) | (
        (torch.isinf(m) | torch.isinf(o)) & (m != o) & ~torch.isnan(m)
    )
    if bool(odd.any()):
        return told(made, other, odd)
    fine = torch.isfinite(m) & torch.isfinite(e)
    gap = torch.where(fine, (m - e).abs(), torch.zeros_like(m))
    most, usual = allowed
    if not bool(fine.any()) or (float(gap.max()) <= most and float(rms(gap[fine])) <= usual):
        return ""
    return told(made, other, gap > min(most, usual))


def numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Floats of 64 bits; two for a complex number."""
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.double()


def rms(value: torch.Tensor) -> Any:
    return value.square().mean().sqrt()


def told(made: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor) -> str:
    gap = (numbers(made) - numbers(right)).abs()
    if made.is_complex():
        gap, wrong = gap.sum(-1), wrong.any(-1)
    gap = torch.where(wrong, torch.nan_to_num(gap, nan=math.inf), -1.0)
    place = [int(n) for n in torch.unravel_index(gap.argmax(), made.shape)] if made.dim() else []
    one, other = made[tuple(place)].item(), right[tuple(place)].item()
    return f"{int(wrong.sum())} of {made.numel()} elements differ; worst at {place}: {one!r}, not {other!r}"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return a.shape == b.shape and bool(
        torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
    )


def check(
    script: str, launch: Any, eager: Any, given: dict[str, Any], recorded: dict[str, Any], notes: Any = ()
) -> int:
    """Run it once, and say what is wrong; 1 if something is."""
    for note in notes:
        print(f"note: {note}")
    tensors = tensors_beside(script, given, recorded)
    found = arguments(given, tensors)
    context = {k: v for k, v in given.items() if v.get("role") == "context"}
    right, exact, shaken, reach = None, None, None, 1.0
    if eager is not None:
        torch.manual_seed(0)
        try:
            right = dict(eager(**arguments(given, tensors)))
        except Exception as error:
            print(f"note: eager cannot be computed here: {type(error).__name__}: {error}")
        eps = max(
            (
                torch.finfo(torch.float32 if v.dtype in WIDE else torch.float64).eps
                for v in found.values()
                if v.is_floating_point() or v.is_complex()
            ),
            default=0,
        )
        exact = in_float64(eager, arguments(given, tensors))
        least = min((v.numel() for v in (right or {}).values()), default=1)
        reach = max([1.0, *(v.numel() / max(1, least) for v in found.values())])
        shaken = in_float64(eager, arguments(given, tensors), eps * (1 + math.sqrt(reach) / 4))
    before = {n: found[n].clone() for n, v in given.items() if v["role"] == "in" and not shared(n, given)}
    torch.manual_seed(0)
    litter(found)
    try:
        with filled_memory():
            returned = launch(**{n: t for n, t in found.items() if n not in context})
    except Exception as error:
        traceback.print_exc()
        print(f"FAIL the launch raised {type(error).__name__}")
        return 1
    made = found | returned
    problems = 0
    for name, about in given.items():
        if about.get("unwritten") and not shared(name, given):
            problems += 1
            print(f"FAIL {name}: it is to be read, and nobody had written to that memory; here it holds NaN")
    for name, value in before.items():
        if not same_bits(value, made[name]):
            problems += 1
            print(f"FAIL {name}: the kernel changed it, and declares not to")

    def of(part: Any, name: str) -> Any:
        return None if part is None else part.get(name)

    limits = {
        n: allowance(of(right, n), of(exact, n), of(shaken, n), reach) for n in {*recorded, *(right or ())}
    }
    for name, about in recorded.items():
        kept = recorded_result(tensors[about["saved"]], about)
        if same_bits(made[name], kept):
            print(f"ok   {name}: the same bits as recorded")
            continue
        wrong = difference(made[name], kept, kept, limits[name])
        problems += bool(wrong)
        said = f"FAIL {name}, beside what was recorded: {wrong}"
        print(said if wrong else f"ok   {name}: as recorded, but for rounding")
    for name, value in (right or {}).items():
        best = value if of(exact, name) is None else of(exact, name)
        own = made[name].reshape(value.shape) if made[name].numel() == value.numel() else made[name]
        wrong = difference(own, value, best, limits[name])
        problems += bool(wrong)
        said = f"FAIL {name}, beside eager: {wrong}"
        print(said if wrong else f"ok   {name}: as eager computes it, but for rounding")
    if not recorded and not right:
        print("nothing to compare it with: neither its results nor its FX nodes can be used here")
        return 2
    print("FAILED" if problems else "passed")
    return 1 if problems else 0


def shared(name: str, given: dict[str, Any]) -> bool:
    """Whether an argument that is written lies in the same memory."""
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
        print("its FX nodes were not recorded: there is no eager to time")
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
