"""What `kernelscope run` costs as a command: wall time of a whole training script, start included.

    python benchmarks/command.py                        # 200 steps of GPT-2
    python benchmarks/command.py --device cpu --steps 50 --rounds 2

Caches are warm: each variant runs once before it is timed. The floor is `python train_gpt2.py`.
"""

from __future__ import annotations

import argparse
import os
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


def seconds(words: list[str], folder: str, options: list[str], environment: dict[str, str]) -> float:
    out = Path(folder) / "run.kscope"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, *(word.format(out=out) for word in words), str(SCRIPT), *options]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    took = time.perf_counter() - start
    if done.returncode or "loss" not in done.stdout:
        raise SystemExit(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    return took


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
    ratios: dict[str, list[float]] = {name: [] for name in variants}
    times: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder + "/inductor"}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
        )
        for name, words in variants.items():
            print(f"… warming up: {name}", file=sys.stderr, flush=True)
            seconds(words, folder, options, environment)
        for _ in range(given.rounds):
            bare = seconds([], folder, options, environment)
            for name, words in variants.items():
                took = seconds(words, folder, options, environment) if words else bare
                times[name].append(took)
                ratios[name].append(took / bare)
                print(f"… {name}: {took:.1f} s, {took / bare:.2f}×", file=sys.stderr, flush=True)
    print(f"| {given.steps} steps of GPT-2, start included | wall time | × bare |\n|---|---|---|")
    for name, found in ratios.items():
        print(f"| {name} | {statistics.median(times[name]):.1f} s | {statistics.median(found):.2f} |")
    worst = statistics.median(ratios.get("kernelscope run --values hash", [0.0]))
    if given.check and worst > LIMIT:
        raise SystemExit(
            f"kernelscope run --values hash takes {worst:.2f} times as long; {LIMIT} is the most"
        )


if __name__ == "__main__":
    main()
