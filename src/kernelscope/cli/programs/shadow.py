"""`kernelscope shadow`: the script runs in a child, and every kernel of its compiled code is judged there."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernelscope.cli.program import script_words

EPILOG = """\
examples:
  kernelscope shadow train.py --epochs 1     which kernel computes something else than eager?
  kernelscope shadow --json -m my.module     as JSON; what the program prints goes to stderr

Everything is compiled anew, without torch's compile caches, because only the compiler knows which buffer
holds which value. Exit status: 0 nothing is wrong, 1 something is, 2 that could not be found out.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "shadow",
        help="name the kernel that computes something else than eager",
        description="Run a script, and judge each compiled kernel by eager and by float64 on its own inputs.",
        usage="kernelscope shadow [options] (script.py | -m module) [arguments …]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/shadow.md has the keys)")
    parser.add_argument(
        "--offload", action="store_true", help="compute the references on the CPU, to spare a GPU's memory"
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    words = script_words(args, "shadow")
    with tempfile.TemporaryDirectory(prefix="kernelscope-shadow-") as folder:
        answer = Path(folder) / "result.json"
        command = [sys.executable, "-m", "kernelscope.shadowing.script_child", str(answer)]
        command += ["--offload"] * args.offload
        # With --json, stdout is for the result alone.
        done = subprocess.run([*command, "--", *words], stdout=sys.stderr if args.json else None, check=False)
        result = _read(answer)
    return _tell(result, done.returncode, as_json=args.json)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _tell(answer: dict[str, Any] | None, status: int, *, as_json: bool) -> int:
    if answer is None:
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        problem = f"the script {how} before anything could be said"
        if as_json:
            print(json.dumps({"culprit": None, "culprits": [], "status": 2, "problem": problem}, indent=2))
        print(f"kernelscope: {problem}", file=sys.stderr)
        return 2
    result = answer["result"]
    code = int(result["status"])
    if answer["failed"] and code == 0:
        code = result["status"] = 2
        result["problem"] = f"the script failed: {answer['failed']}"
    print(json.dumps(result, indent=2) if as_json else answer["text"])
    if answer["failed"]:
        print(f"kernelscope: the script failed: {answer['failed']}", file=sys.stderr)
    return code
