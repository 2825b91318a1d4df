"""record(): a recording around a block of the program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kernelscope.config import Config, strict_from_environment, strings
from kernelscope.model.run import Run
from kernelscope.probes.contained import contained
from kernelscope.probes.distributed.process_groups import launch, place
from kernelscope.probes.probe_list import check_gil
from kernelscope.store import folder
from kernelscope.store.ranks.shared_folder import part_of_rank
from kernelscope.text.exceptions import noted

from .open_recordings import OPEN
from .recording import Recording


def record(
    *,
    values: str = "off",
    ops: str = "graph",
    kernel: str | Sequence[str] = (),
    kind: str | Sequence[str] = (),
    verify: str = "",
    path: str | os.PathLike[str] | None = None,
    steps: tuple[int, int] | None = None,
    time: bool = False,
    stop_at: int | None = None,
    max_tensors: int = 2_000_000_000,
    keep_last: int = 0,
    recapture: bool = False,
    mark_graphs: bool = False,
    stages: bool = False,
    fresh: bool = False,
    audit: bool = False,
    recheck: float = 0.0,
) -> AbstractContextManager[Run]:
    """Record every kernel call made inside the block.

    values  "off" for metadata, "hash" for a hash of every argument before and after each launch, "stats" for
            its statistics as well (min, max, mean, std, L1, and counts of NaN, infinities and zeros), "save"
            to keep the tensors, on disk
    ops     "graph" for compiled code and Triton kernels, "all" for eager operators as well
    kernel  record only kernels whose name matches one of these globs
    kind    record only these kinds: "triton", "cpp", "extern", "op"
    verify  "reread" hashes every argument before and after every launch, even when nothing can have
            changed it, and so finds what generated kernels write without declaring it; "poison" fills
            outputs that hold nothing yet, and so finds those that a kernel declares and never writes
    path    a new folder to record to, which survives a crash; without it the run is kept in memory. Ranks of
            one launch share it, and each has its part in it
    steps   record only steps from the first up to, not including, the second: (3, 5)
    time    measure how long each call ran
    stop_at end the program once the call with this index is over
    recapture  have torch.compile forget the CUDA graphs that it captured before (mode="reduce-overhead"), so
            that they are captured again inside the recording and can be seen into
    mark_graphs  of a run on disk: the GPU notes the end of each launch inside CUDA graphs (3 µs each), so
            that a launch which faults there is named
    max_tensors, keep_last    of a run on disk: bytes of saved tensors, and how many steps stay
    stages  keep what the compiler did: every graph on its way down, passes, fusion, each kernel's origin
    fresh   with stages: compile every graph, ignoring compile caches
    recheck run this share of the calls again on the spot, on the same inputs (1: all of them); a call that
            gives another result is a finding
    audit   run a profiler, and keep in `run.audit` which of all launches belong to a recorded call

    Example:
        with kernelscope.record(values="hash") as run:
            model(x).sum().backward()
        print(run)
    """
    if verify and values == "off":
        raise ValueError(f"record(verify={verify!r}) compares hashes; it needs values='hash'")
    config = Config(
        values=values,  # type: ignore[arg-type]  # checked by Config
        ops=ops,  # type: ignore[arg-type]
        kernel=strings(kernel),
        kind=strings(kind),
        verify=verify,  # type: ignore[arg-type]
        strict=strict_from_environment(),
        steps=steps,
        time=time,
        stop_at=stop_at,
        max_tensors=max_tensors,
        keep_last=keep_last,
        recapture=recapture,
        mark_graphs=mark_graphs,
        stages=stages,
        fresh=fresh,
        audit=audit,
        recheck=recheck,
    )
    if path is None and (values == "save" or keep_last or mark_graphs):
        raise ValueError(
            "record(values='save'), record(keep_last=…) and record(mark_graphs=True) need a path: they apply "
            "to runs on disk"
        )
    return _recorded(config, None if path is None else Path(path))


@contextmanager
def _recorded(config: Config, path: Path | None) -> Iterator[Run]:
    check_gil()  # before there is a folder
    recording = Recording(config, None if path is None else _new_folder(path), says_why_empty=True)
    recording.open()
    try:
        yield recording.run
    except (Exception, KeyboardInterrupt) as error:
        with contained("noting the exception that ended the block"):  # such as a __str__ that raises
            _note(recording, error)
        raise
    finally:
        recording.close()


def _note(recording: Recording, error: BaseException) -> None:
    """Keep what ended the block; the program may go on."""
    trace = None if error.__traceback__ is None else error.__traceback__.tb_next  # without our own frame
    for name, text in {**noted(type(error), error, trace), "exception_ended": "block"}.items():
        recording.sink.set_metadata(name, text)


def _new_folder(path: Path) -> Path:
    """A new run; ranks of one launch share it, and each has its part in it."""
    named, here = folder.named(path), place()
    if here.world_size == 1:
        return folder.create(named)
    return part_of_rank(named, here.rank, launch())


def step() -> None:
    """Mark the end of a step in every open recording; from then on `optimizer.step()` does not count."""
    for recording in list(OPEN):
        with contained("counting a step"):
            recording.step(by_user=True)


# Dynamo reads this mark. Without it, it would trace the loop above into a compiled training step, and
# compile that again whenever a recording opens or closes.
step._torchdynamo_disable = True  # type: ignore[attr-defined]
