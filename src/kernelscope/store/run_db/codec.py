"""Sites, calls and values as rows, and back. JSON and numbers, nothing that executes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from kernelscope.events import (
    Arg,
    Call,
    Finding,
    Graph,
    GraphCall,
    Kernel,
    Mark,
    RunInfo,
    Site,
    SteadySite,
    TensorSpec,
)
from kernelscope.fingerprint.stats import NO_NUMBERS, Stats, StatsRow
from kernelscope.stages.json_records import frames_of
from kernelscope.text.visible import unbroken

Row = tuple[Any, ...]
_BITS = 1 << 64
_STATS = tuple(Stats.__dataclass_fields__)
_QUICK = "[%d,%r,%r,%r,%r,%r,%d,%d,%d,%d]"  # as JSON has the numbers of statistics
_EXACT = 1 << 53


class Stored:
    """A value of a kind that only the recording process knew: its name and fields, as text shows them."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name, self.fields = name, fields

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"a stored {self.name} has {', '.join(self.fields)}, not {name}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and (self.name, self.fields) == (other.name, other.fields)

    def __hash__(self) -> int:
        return hash((self.name, repr(self.fields)))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.fields.items())})"


# -- values -------------------------------------------------------------------------------------------


# Made once: `json.dumps` would make one for each value that a site has.
_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def to_json(value: Any) -> str:
    return _encoded(_plain(value))


def from_json(text: str) -> Any:
    return _unplain(json.loads(text))


def _plain(value: Any) -> Any:
    """As JSON can say it. What JSON has no word for is an object with one key that starts with "$"."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value if kind is not str else storable(value)
    if kind is int:
        return value if -(1 << 53) <= value <= 1 << 53 else {"$int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is complex:
        return {"$complex": [_plain(value.real), _plain(value.imag)]}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        values = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {"$object": [kind.__name__, values]}
    if isinstance(value, Stored):
        return {"$object": [value.name, {k: _plain(v) for k, v in value.fields.items()}]}
    return str(value)


def _unplain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unplain(v) for v in value)
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(key, inner)] = value.items()
        if key == "$int":
            return int(inner) if len(inner) < 4000 else inner
        if key == "$float":
            return float(inner)
        if key == "$complex":
            return complex(*map(_unplain, inner))
        if key == "$object":
            return Stored(str(inner[0]), {str(k): _unplain(v) for k, v in inner[1].items()})
    return {k: _unplain(v) for k, v in value.items()}


def storable(text: str) -> str:
    """Without lone surrogates, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode()


def fingerprint_row(slot: int, value: Any, stats: Any = None) -> Row:
    """64 bits as SQLite's signed integer; anything else as text."""
    told = stats_text(stats)
    if type(value) is int and 0 <= value < _BITS:
        return slot, value - _BITS if value >= _BITS >> 1 else value, None, told
    return slot, None, to_json(value), told


def stats_text(stats: Any) -> str | None:
    return None if stats is None else to_json([getattr(stats, name) for name in _STATS])


def stats_row_text(given: StatsRow) -> str | None:
    """The same of a row as an engine leaves it: there are many of them."""
    row, numel = given
    if numel == NO_NUMBERS:
        return None
    low, high, mean, std, l1, nan, pos_inf, neg_inf, zeros = row
    is_finite = math.isfinite(low + high + mean + std + l1)
    if not is_finite or numel == nan + pos_inf + neg_inf or numel > _EXACT:
        return stats_text(Stats.from_row(row, numel))
    return _QUICK % (numel, low, high, mean, std, l1, nan, pos_inf, neg_inf, zeros)


def stats_of(text: str | None) -> Stats | None:
    if text is None:
        return None
    given = from_json(text)
    if not isinstance(given, list | tuple) or len(given) != len(_STATS):
        raise ValueError(f"statistics have {len(_STATS)} numbers")
    return Stats(*given)


def fingerprint_value(bits: int | None, other: str | None) -> Any:
    return bits % _BITS if bits is not None else from_json(other) if other is not None else None


# -- what is written once ---------------------------------------------------------------------------------


def row_of(record: Kernel | Graph | Mark | Finding) -> Row:
    """Its fields in order, which are the columns of its table."""
    return tuple(getattr(record, name) for name in record.__dataclass_fields__)


def graph_call_row(call: GraphCall) -> Row:
    parent = call.parent if call.parent >= 0 else None
    return call.index, call.graph.id, call.thread, call.stream, call.phase, call.step, parent


def site_row(site: Site, uninitialised: Sequence[int] = ()) -> Row:
    grid = None if site.grid is None else to_json(site.grid)
    origin = to_json([[f.file, f.line, f.function] for f in site.origin])
    return (
        site.id, site.kernel.id, site.file, site.line, grid, to_json(site.config), origin, site.device,
        site.collective, to_json(uninitialised), bytes_moved(site.args),
    )  # fmt: skip


_sizes = lru_cache(maxsize=4096)(to_json)  # shapes and strides: a graph has few different ones


def argument_rows(site: Site) -> Iterator[Row]:
    for position, arg in enumerate(site.args):
        spec = arg.tensor
        about = (
            (None,) * 6
            if spec is None
            else (spec.dtype, _sizes(spec.shape), _sizes(spec.stride), spec.device, spec.type, spec.unread)
        )
        value = None if arg.value is None else to_json(arg.value)
        yield (
            site.id, position, arg.name, arg.role, *about, arg.wrapper_name, value, int(arg.varies),
            int(arg.returned),
        )  # fmt: skip


def arg_of(row: Row) -> Arg:
    name, role, dtype, shape, stride, device, kind, unread, wrapper_name, value, varies, returned = row
    spec = None
    if dtype is not None:
        spec = TensorSpec(dtype, numbers(shape), numbers(stride), device, kind, unread)
    held = None if value is None else from_json(value)
    wrapper_name = " ".join(wrapper_name.splitlines())  # an expression of the wrapper
    return Arg(name, role, spec, wrapper_name, held, bool(varies), bool(returned))


def site_of(row: Row, kernel: Kernel, args: Iterable[Arg]) -> Site:
    id, _, file, line, grid, config, origin, device, collective, *_ = row
    frames = frames_of(json.loads(origin))
    settings = from_json(config)
    if not isinstance(settings, dict):
        raise ValueError(f"the config of site {id} is {settings!r:.40}")
    settings = {unbroken(k): unbroken(v) if isinstance(v, str) else v for k, v in settings.items()}
    return Site(
        id, kernel, tuple(args), file, line, None if grid is None else numbers(grid), settings,
        frames, device, collective,
    )  # fmt: skip


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in json.loads(text))


def bytes_moved(args: Sequence[Arg]) -> int | None:
    """What a launch reads and writes at least, if each tensor is touched once; None when unknown."""
    total = 0
    for arg in args:
        spec = arg.tensor
        if spec is None:
            continue
        if any(n < 0 for n in spec.shape):
            return None
        total += spec.item_size * spec.numel * (2 if arg.role == "inout" else 1)
    return total if total < 1 << 63 else None  # an expanded tensor; SQLite's integers end there


# -- what is written for every call ---------------------------------------------------------------------


def call_row(call: Call) -> Row:
    return (
        call.index, call.site.id, call.graph_call, call.start_ns,
        call.duration_ns if call.duration_ns >= 0 else None, call.step, call.phase, call.thread, call.stream,
        call.replay if call.replay >= 0 else None, call.parent if call.parent >= 0 else None, None,
    )  # fmt: skip


def detail_row(call: Call) -> Row | None:
    if not (call.scalars or call.storages or call.uninitialised or call.pre or call.post or call.depth):
        return None
    pre, post, poison = (s if s is None else json.dumps(s) for s in (call.pre, call.post, call.poison))
    return (
        call.index, to_json(call.scalars), json.dumps(call.storages), json.dumps(call.epochs),
        json.dumps(call.offsets), json.dumps(call.uninitialised), pre, post, call.depth, poison,
    )  # fmt: skip


class Layout(NamedTuple):
    """What is the same in each graph call that was planned, or in each replay of a CUDA graph."""

    storages: tuple[int, ...]
    epochs: tuple[int, ...]
    offsets: tuple[int, ...]
    pre: dict[int, int] | None
    post: dict[int, int] | None
    scalars: tuple[Any, ...] = ()
    uninitialised: tuple[int, ...] = ()
    poison: dict[int, int] | None = None


def layout_id(steady: SteadySite, number: int) -> int | None:
    """The layout of calls whose notes have this number for their site."""
    return number + 1 if steady.has_layout else None


def layout_row(id: int, steady: SteadySite) -> Row:
    lists = map(json.dumps, (steady.storages, steady.epochs, steady.offsets))
    pre, post, poison = (s if s is None else json.dumps(s) for s in (steady.pre, steady.post, steady.poison))
    return id, *lists, pre, post, to_json(steady.scalars), json.dumps(steady.uninitialised), poison


def layout_of(row: Row) -> Layout:
    _, storages, epochs, offsets, pre, post, *newer = row
    lists = numbers(storages), numbers(epochs), numbers(offsets)
    scalars, uninitialised, poison = newer or ("[]", "[]", None)
    return Layout(
        *lists, _slots(pre), _slots(post), from_json(scalars), numbers(uninitialised), _slots(poison)
    )


def call_of(row: Row, site: Site, graph_call: GraphCall | None, uninitialised: tuple[int, ...]) -> Call:
    """A call from its row; what the row leaves open stands in its graph call."""
    id, _, graph_call_id, start_ns, duration_ns, step, phase, thread, stream, replay, parent, *_ = row
    if graph_call is not None:
        step = graph_call.step if step is None else step
        phase = graph_call.phase if phase is None else phase
        thread = graph_call.thread if thread is None else thread
        stream = graph_call.stream if stream is None else stream
        parent = graph_call.parent if parent is None else parent
    return Call(
        id, site, graph_call_id, step or 0, -1 if replay is None else replay, thread or 0, stream or 0,
        phase or "other", start_ns, -1 if parent is None else parent, uninitialised=uninitialised,
        duration_ns=-1 if duration_ns is None else duration_ns,
    )  # fmt: skip


def add_details(call: Call, row: Row, fingerprinter: Any) -> None:
    _, scalars, storages, epochs, offsets, uninitialised, pre, post, depth, *newer = row
    call.scalars = from_json(scalars)
    call.storages, call.epochs, call.offsets = numbers(storages), numbers(epochs), numbers(offsets)
    call.uninitialised, call.depth = numbers(uninitialised), int(depth)
    call.pre, call.post, call.poison = _slots(pre), _slots(post), _slots(newer[0] if newer else None)
    call.fingerprinter = fingerprinter


def _slots(text: str | None) -> dict[int, int] | None:
    return None if text is None else {int(k): int(v) for k, v in json.loads(text).items()}


# -- the run ------------------------------------------------------------------------------------------------


def info_rows(info: RunInfo) -> list[Row]:
    return [(key, to_json(value)) for key, value in asdict(info).items()]


def info_of(rows: Iterable[Row]) -> RunInfo:
    given = {"main_thread": 0} | {key: from_json(value) for key, value in rows}
    types = {"str": str, "int": int, "tuple[str, ...]": tuple}
    for f in fields(RunInfo):
        if not isinstance(given[f.name], types.get(str(f.type), dict)):
            raise ValueError(f"info.{f.name} is {given[f.name]!r:.40}")
    return RunInfo(**{f.name: given[f.name] for f in fields(RunInfo)})
