"""Settings. The only module that reads the environment."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

Values = Literal["off", "hash", "stats", "save"]
Ops = Literal["graph", "all"]
Verify = Literal["", "reread", "poison"]


@dataclass(frozen=True, slots=True)
class Config:
    """What one recording observes."""

    values: Values = "off"
    ops: Ops = "graph"
    kernel: tuple[str, ...] = ()  # globs; empty records all
    kind: tuple[str, ...] = ()
    verify: Verify = ""
    strict: bool = True  # a hook target that is not found is an error, not a warning
    steps: tuple[int, int] | None = None  # record only steps from the first up to, not including, the second
    time: bool = False  # how long each call ran
    stop_at: int | None = None  # end the program once this call is over
    max_tensors: int = 2_000_000_000  # bytes of saved tensors, with values="save"
    replay: tuple[int, ...] = ()  # calls that are launched again and again where they happen
    recheck: float = 0.0  # share of the calls that are run again on the spot
    save_call: int | None = None  # with values="save": keep the tensors of this call only
    keep_last: int = 0  # steps that stay on disk; 0 for all
    recapture: bool = False  # drop torch.compile's CUDA graphs, so that they are captured under the recording
    mark_graphs: bool = False  # the GPU notes the end of each launch inside CUDA graphs
    stages: bool = False  # what the compiler does
    fresh: bool = False  # with stages: no graph from a cache
    audit: bool = False  # hold what a profiler sees against the calls

    def __post_init__(self) -> None:
        _check("values", self.values, get_args(Values))
        _check("ops", self.ops, get_args(Ops))
        _check("verify", self.verify, get_args(Verify))
        for name in ("kernel", "kind"):
            given = getattr(self, name)
            if not (isinstance(given, tuple) and all(isinstance(g, str) for g in given)):
                raise TypeError(f"record({name}=…) takes a string or a list of strings, not {given!r}")

        self._check_numbers()
        if self.kind == ("op",) and self.ops != "all":
            raise ValueError("record(kind='op') records eager operators, which need ops='all'")

        if self.fresh and not self.stages:
            raise ValueError("record(fresh=True) compiles again to see the stages; it needs stages=True")

    def _check_numbers(self) -> None:
        first, end = self.steps or (0, 1)
        if not 0 <= first < end:
            raise ValueError(
                f"record(steps={self.steps!r}): give the first step and the one after the last: (3, 5)"
            )
        if not isinstance(self.recheck, int | float) or not 0 <= self.recheck <= 1:
            raise ValueError(f"record(recheck={self.recheck!r}): give a share of the calls, from 0 to 1")
        for name in ("stop_at", "max_tensors", "save_call", "keep_last"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, int) or given < 0):
                raise ValueError(f"record({name}={given!r}): the number must be at least 0")

    def changed(self) -> dict[str, object]:
        """The settings that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


def strings(given: str | Iterable[str]) -> tuple[str, ...]:
    """One string or several; anything else is left for `Config` to refuse."""
    if isinstance(given, str):
        return (given,)
    return tuple(given) if isinstance(given, Iterable) else given


def _check(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        known = ", ".join(repr(a) for a in allowed)
        raise ValueError(f"record({name}={given!r}): unknown value; use one of {known}")


def has_gil() -> bool:
    """Whether this Python runs one thread at a time: free-threaded builds have it switched off."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def strict_from_environment(environ: Mapping[str, str] = os.environ) -> bool:
    """KERNELSCOPE_STRICT=0 turns a hook target that is not found into a warning, and that probe off."""
    given = environ.get("KERNELSCOPE_STRICT") or "1"
    if given not in ("0", "1"):
        raise ValueError(f"KERNELSCOPE_STRICT={given!r}: use 0 or 1")
    return given == "1"


def stock_form_from_environment(environ: Mapping[str, str] = os.environ) -> bool:
    """KERNELSCOPE_STOCK_FORM=1 gives DebugMode's listings the form of torch's own."""
    given = environ.get("KERNELSCOPE_STOCK_FORM") or "0"
    if given not in ("0", "1"):
        raise ValueError(f"KERNELSCOPE_STOCK_FORM={given!r}: use 0 or 1")
    return given == "1"


@dataclass(frozen=True, slots=True)
class Rank:
    """Which process of a group this one is, as torchrun and Slurm tell it."""

    group: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1


def rank_from_environment(environ: Mapping[str, str] = os.environ) -> Rank:
    def number(*names: str, default: int) -> int:
        given = next((environ[n] for n in names if environ.get(n, "").isdigit()), None)
        return default if given is None else int(given)

    return Rank(
        group=environ.get("TORCHELASTIC_RUN_ID", environ.get("SLURM_JOB_ID", "")),
        rank=number("RANK", "SLURM_PROCID", default=0),
        local_rank=number("LOCAL_RANK", "SLURM_LOCALID", default=0),
        world_size=number("WORLD_SIZE", "SLURM_NTASKS", default=1),
    )


def launch_from_environment(environ: Mapping[str, str] = os.environ, met_at: str = "") -> str:
    """What the launcher gave to all ranks alike, and to no other launch at the same time.

    Ranks without a launcher know where they met; if not, multiprocessing starts them all from one process.
    """
    names = (
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "SLURM_JOB_ID",
        "MASTER_ADDR",
        "MASTER_PORT",
    )
    told = [environ.get(name, "-") for name in names]
    if all(word == "-" for word in told):
        told.append(met_at or f"parent {os.getppid()}")
    return " ".join(told)


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """What is printed, saved and watched of the values inside compiled code."""

    prints: bool = False
    names: bool = False  # of kernels, printed before and after each launch
    saves: bool = False
    kernels: tuple[str, ...] = ()  # globs; empty looks at all
    folder: str = ""  # for files; empty chooses one
    watches: tuple[str, ...] = ()  # conditions that end the program
    exact: bool = False  # look at each launch at once, also where that means to wait for a GPU

    def __bool__(self) -> bool:
        return self.prints or self.names or self.saves or bool(self.watches)


PRINTER = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
FILTERED = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"


def printer_from_environment(environ: Mapping[str, str] = os.environ) -> tuple[str, tuple[str, ...]]:
    """The level that torch's own variable asks for, and the kernels; torch's own levels are "0" to "3"."""
    level = environ.get(PRINTER, "").strip() or "0"
    if level not in ("0", "1", "2", "3"):
        raise ValueError(
            f"{PRINTER}={level!r}: unknown level; use 0 (off), 1 (save), 2 (print) or 3 (print kernel names)"
        )
    return level, tuple(filter(None, (name.strip() for name in environ.get(FILTERED, "").split(","))))


def wants_printer(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a process that imports kernelscope shows its values; a recorded one sees to that itself."""
    return environ.get(PRINTER, "").strip() not in ("", "0") and not environ.get(RUN)


RUN, OPTIONS, SWITCH = "KERNELSCOPE_RUN", "KERNELSCOPE_OPTIONS", "KERNELSCOPE_SWITCH"


@dataclass(frozen=True, slots=True)
class AutoRecord:
    """What `kernelscope run`, or the user through the environment, wants of a whole process."""

    path: Path
    rank: int | None
    options: str = ""  # as for `kernelscope run`
    switch: Path | None = None  # a file: nothing is recorded unless it exists


def autorecord_from_environment(environ: Mapping[str, str] = os.environ) -> AutoRecord | None:
    path = environ.get(RUN, "")
    if not path:
        return None
    has_rank = any(environ.get(name, "").isdigit() for name in ("RANK", "SLURM_PROCID"))
    named = path.rstrip("/") or path
    named = named if named.endswith(".kscope") else f"{named}.kscope"
    rank = rank_from_environment(environ).rank if has_rank else None
    switch = environ.get(SWITCH, "")
    file = Path(switch).absolute() if switch else None
    return AutoRecord(Path(named).absolute(), rank, environ.get(OPTIONS, ""), file)


def settle_run(path: Path) -> None:
    """From now on a process that this one starts finds the run, wherever it is started."""
    os.environ[RUN] = str(path)


def recorded_environment(
    path: Path, options: str, startup: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment in which a command and its children record."""
    search = os.pathsep.join(filter(None, [str(startup), environ.get("PYTHONPATH", "")]))
    ours = {RUN: str(path.absolute()), OPTIONS: options, "PYTHONPATH": search}
    if PRINTER in environ:
        ours[PRINTER] = "0"  # the options say it now: torch's own printer would change the generated code
    return {**environ, **ours}


def unrecorded_environment(packages: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which a Python that this process starts finds `packages`, and records nothing."""
    search = os.pathsep.join(filter(None, [str(packages), environ.get("PYTHONPATH", "")]))
    ours = {name: value for name, value in environ.items() if name not in (RUN, OPTIONS, SWITCH, PRINTER)}
    return {**ours, "PYTHONPATH": search}


_TORCH = ("TORCH", "PYTORCH", "INDUCTOR", "TRITON", "AOT_INDUCTOR", "AOTINDUCTOR")


def torch_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that look as if they were meant for torch, its compiler or Triton."""
    return _starting_with(_TORCH, environ)


def compiler_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a run keeps of the environment: all that torch, its compiler, Triton and CUDA may read."""
    return _starting_with((*_TORCH, "CUDA", "OMP_"), environ)


def _starting_with(prefixes: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(environ.items()) if name.startswith(prefixes)}


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where what we compile is kept from one process to the next; the folder may not exist yet.

    FileNotFoundError when the user has no home.
    """
    given = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative one.
    if os.path.isabs(given):
        return Path(given) / "kernelscope"
    try:
        return Path.home() / ".cache" / "kernelscope"
    except RuntimeError:  # a user without an entry in /etc/passwd, as in a container
        raise FileNotFoundError(errno.ENOENT, "there is no home folder; set HOME or XDG_CACHE_HOME") from None


def pager_from_environment(environ: Mapping[str, str] = os.environ) -> tuple[str, dict[str, str]]:
    """The command that starts the user's pager, empty if PAGER is, and its environment."""
    return environ.get("PAGER", "less"), {"LESS": "FX", **environ}  # what it showed stays on the screen


def is_plain_terminal(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal only prints, as that of an editor: it obeys no escape sequences."""
    return environ.get("TERM", "") == "dumb"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """What belongs to this user and stays; the folder may not exist yet. FileNotFoundError without a home."""
    given = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "kernelscope"
    try:
        return Path.home() / ".local" / "state" / "kernelscope"
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "there is no home folder; set HOME or XDG_STATE_HOME") from None


def all_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    return dict(environ)


def set_variables(changes: Mapping[str, str | None]) -> None:
    """From now on, of this process and what it starts; None removes one."""
    os.environ.update({name: value for name, value in changes.items() if value is not None})
    for name in [name for name, value in changes.items() if value is None]:
        os.environ.pop(name, None)


USUAL_COMPILERS = ("c++", "g++", "clang++")


def compilers(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """C++ compilers to try, in order; the first is CXX, as for Inductor, and may carry arguments."""
    return (*filter(None, [environ.get("CXX")]), *USUAL_COMPILERS)


@dataclass(frozen=True, slots=True)
class Conductor:
    """Settings of the gcu backend, as the CONDUCTOR_* variables give them."""

    debug: bool = False
    fx: bool = True
    dag: bool = True
    dsl: bool = True
    wrapper: bool = True
    meta: bool = True
    flow: bool = True
    max_elements: int = 100
    indent: int = 2
    strict: bool = False
    target: str = "cpu"
    debug_folder: str = "debug_dir"
    compile_seconds: int = 300


_CONDUCTOR = {  # fields whose variable is not CONDUCTOR_DEBUG_ and their name
    "debug": "DEBUG", "strict": "STRICT", "target": "TARGET", "debug_folder": "DEBUG_DIR",
    "compile_seconds": "COMPILE_SECONDS",
}  # fmt: skip
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def conductor_from_environment(environ: Mapping[str, str] = os.environ) -> Conductor:
    given: dict[str, Any] = {}
    for field in fields(Conductor):
        name = f"CONDUCTOR_{_CONDUCTOR.get(field.name, f'DEBUG_{field.name.upper()}')}"
        value = environ.get(name, "").strip()
        if not value:
            continue
        if isinstance(field.default, bool):
            if value.lower() not in _YES + _NO:
                raise ValueError(f"{name}={environ[name]!r}: use 0 or 1")
            given[field.name] = value.lower() in _YES
        elif isinstance(field.default, int):
            if not value.isdigit():
                raise ValueError(f"{name}={environ[name]!r}: use an integer, 0 or more")
            given[field.name] = int(value)
        else:
            given[field.name] = environ[name]
    return Conductor(**given)
