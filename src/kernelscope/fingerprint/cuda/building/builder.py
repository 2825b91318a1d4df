"""The process that builds kernels: reads a job from its input, and reports each kernel when it is there.

It imports Triton, not torch, needs no GPU, and ends when its input is closed: with the process that wants
the kernels. Run as a script, with the folders of modules in the job.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_THREADS_OF_A_WARP = 32


def main() -> None:
    job = json.loads(sys.stdin.readline())
    sys.path[:] = job["path"]
    os.nice(job["nice"])
    from kernelscope.fingerprint.cuda.building.kernel_files import Spec

    specs = [Spec.from_json(each) for each in job["specs"]]
    folder = Path(job["folder"])
    with (folder / "building.lock").open(
        "w", encoding="utf-8"
    ) as lock:  # of several processes that want the same, one builds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _end_if_alone(0.05)
        with tempfile.TemporaryDirectory(prefix="triton-", dir=folder) as cache:
            _build_all(specs, folder, job, cache)


def _build_all(specs: list[Any], folder: Path, job: dict[str, Any], cache: str) -> None:
    from kernelscope.fingerprint.cuda.building.kernel_files import as_bytes, read
    from kernelscope.native.library_cache import write_whole

    wanted = []
    for spec in specs:
        file = spec.file(folder, job["arch"], job["triton"])
        if read(file) is None:
            wanted.append((spec, file))
        else:
            _say({"built": file.name})
    if not wanted:
        return
    import triton  # noqa: F401  # before the forks

    def build(spec: Any, file: Path) -> None:
        built = compiled(spec, job["arch"], cache)
        write_whole(file, as_bytes(built))

    running: dict[int, str] = {}
    for spec, file in wanted:
        while len(running) >= job["at_once"]:
            _reap(running)
        pid = os.fork()
        if not pid:
            _be_worker(build, spec, file)
        running[pid] = file.name
    while running:
        _reap(running)


def _be_worker(build: Callable[[Any, Path], None], spec: Any, file: Path) -> None:
    status = 1
    try:
        build(spec, file)
        _say({"built": file.name})
        status = 0
    except BaseException as error:
        _say({"failed": file.name, "why": f"{type(error).__name__}: {error}"[:1000]})
    finally:
        os._exit(status)


def _reap(running: dict[int, str]) -> None:
    """Wait until one of them has ended, or nobody wants them any more."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name = running.pop(pid)
            if os.WIFSIGNALED(status):
                _say({"failed": name, "why": f"the compiler was killed by signal {os.WTERMSIG(status)}"})
            return
        _end_if_alone(0.02, running)


def _end_if_alone(seconds: float, running: dict[int, str] | None = None) -> None:
    ready, _, _ = select.select([0], [], [], seconds)
    if ready and not os.read(0, 1):
        for pid in running or ():
            os.kill(pid, 15)
        raise SystemExit(1)


def compiled(spec: Any, arch: int, cache: str) -> Any:
    """Build one kernel, in this process."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernelscope.fingerprint.cuda.building.kernel_files import KernelFile

    triton.knobs.cache.dir = cache
    modules = f"kernelscope.fingerprint.cuda.kernels.{spec.module}"
    kernel = getattr(__import__(modules, fromlist=[spec.kernel]), spec.kernel)
    names = kernel.arg_names
    constants = {
        name: getattr(triton.language, value) if isinstance(value, str) else value
        for name, value in spec.constants
    }
    if len(names) != spec.numbers + len(constants) or any(n in constants for n in names[: spec.numbers]):
        raise ValueError(f"{spec.name} takes {len(names)} arguments")
    signature = {name: "constexpr" if name in constants else "i64" for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    options = {"num_warps": spec.num_warps}
    if spec.maxnreg is not None:
        options["maxnreg"] = spec.maxnreg
    target = GPUTarget("cuda", arch, _THREADS_OF_A_WARP)
    made = triton.compile(ASTSource(kernel, signature, places, {}), target=target, options=options)
    about = made.metadata
    if about.num_ctas != 1 or any(
        getattr(about, name, 0) for name in ("global_scratch_size", "profile_scratch_size")
    ):
        raise ValueError(f"{spec.name} needs more than a plain launch")
    return KernelFile(about.name, about.shared, _THREADS_OF_A_WARP * about.num_warps, made.asm["cubin"])


def _say(what: dict[str, str]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")  # whole lines: several processes write


if __name__ == "__main__":
    main()
