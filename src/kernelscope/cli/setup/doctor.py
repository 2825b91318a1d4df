"""`kernelscope doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import argparse

from kernelscope.cli.arguments import add_json
from kernelscope.doctor.checks import CHECKS, Health
from kernelscope.views import plain

DESCRIPTION = "Check versions, probes, compiler, GPU, folders and TORCH* variables, and suggest fixes."
EPILOG = """\
examples:
  kernelscope doctor            exit status 1 if something does not work
  kernelscope doctor --json
"""
_MARKS: dict[Health, str] = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    found = [result for check in CHECKS for result in check()]
    if args.json:
        plain.dump({"checks": [r.form() for r in found]})
    else:
        for result in found:
            print(f"{_MARKS[result.health]}  {result.what}" + (f": {result.found}" if result.found else ""))
            if result.advice:
                print(f"      → {result.advice}")
    return int(any(result.health == "bad" for result in found))
