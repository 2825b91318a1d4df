"""`kernelscope doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import argparse

from kernelscope.doctor.checks import EXAMINATIONS, Health
from kernelscope.views import plain

EPILOG = """\
examples:
  kernelscope doctor            exit status 1 when something does not work
  kernelscope doctor --json
"""
_MARKS: dict[Health, str] = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="what works on this machine, and what to do about the rest",
        description="Look at versions, probes, compiler, GPU, folders and TORCH* variables; say what to do.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/cli.md has the keys)")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    found = [result for examine in EXAMINATIONS for result in examine()]
    if args.json:
        plain.dump({"checks": [r.form() for r in found]})
    else:
        for result in found:
            print(f"{_MARKS[result.health]}  {result.what}" + (f": {result.found}" if result.found else ""))
            if result.advice:
                print(f"      → {result.advice}")
    return int(any(result.health == "bad" for result in found))
