"""What `kernelscope run` costs as a command: wall time of a whole training script, start included.

    python benchmarks/command.py                        # 200 steps of GPT-2
    python benchmarks/command.py --device cpu --steps 50 --rounds 2

Caches are warm: all variants run a few steps, side by side, before any is timed. The floor is
`python train_gpt2.py`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE / "train_gpt2.py"
LIMIT = 1.35  # of `--values hash`
VARIANTS: dict[str, list[str]] = {
    "python train.py": [],
    "kernelscope run": ["-m", "kernelscope", "run", "--values", "off", "-o", "{out}"],
    "kernelscope run --values hash": ["-m", "kernelscope", "run", "--values", "hash", "-o", "{out}"],
    "kernelscope run --values stats": ["-m", "kernelscope", "run", "--values", "stats", "-o", "{out}"],
}


def start(words: list[str], folder: str, name: str, options: list[str]) -> subprocess.Popen[str]:
    out = Path(folder) / f"{name}.kscope"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, *(word.format(out=out) for word in words), str(SCRIPT), *options]
    paths = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        command,
        env={
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": folder + "/inductor",
            "PYTHONPATH": os.pathsep.join(paths),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )


def finish(process: subprocess.Popen[str]) -> None:
    told, _ = process.communicate()
    if process.returncode or "loss" not in told:
        raise SystemExit(f"{process.args} failed:\n{told}")


def seconds(words: list[str], folder: str, options: list[str]) -> tuple[float, float]:
    """Wall time, and CPU time of all its processes."""
    began, used = time.perf_counter(), cpu_time()
    finish(start(words, folder, "timed", options))
    return time.perf_counter() - began, cpu_time() - used


def cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="words that a variant's name must contain, by commas")
    parser.add_argument("--check", action="store_true", help=f"fail if hashes cost more than {LIMIT} times")
    given = parser.parse_args()
    options = ["--steps", str(given.steps), *(["--device", given.device] if given.device else [])]
    wanted = [word for word in given.only.split(",") if word]
    variants = {
        name: words
        for name, words in VARIANTS.items()
        if not words or not wanted or any(word in name.split() for word in wanted)
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as folder:
        print("… warming up", file=sys.stderr, flush=True)
        few = [*options, "--steps", "3"]
        warming = [start(words, folder, f"warm-{i}", few) for i, words in enumerate(variants.values())]
        for process in warming:
            finish(process)
        for _ in range(given.rounds):
            for name, words in variants.items():
                times[name].append(seconds(words, folder, options))
                wall, used = times[name][-1]
                print(f"… {name}: {wall:.1f} s, {used:.1f} s of CPU time", file=sys.stderr, flush=True)
    bare = times["python train.py"]
    ratios = {name: [t[0] / b[0] for t, b in zip(found, bare, strict=True)] for name, found in times.items()}
    print(
        f"| {given.steps} steps of GPT-2, start included | wall time | × bare | CPU time |\n|---|---|---|---|"
    )
    for name, found in times.items():
        wall, used = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {wall:.1f} s | {statistics.median(ratios[name]):.2f} | {used:.1f} s |")
    worst = statistics.median(ratios.get("kernelscope run --values hash", [0.0]))
    if given.check and worst > LIMIT:
        raise SystemExit(
            f"kernelscope run --values hash takes {worst:.2f} times as long; {LIMIT} is the most"
        )


if __name__ == "__main__":
    main()
