"""What every benchmark does with its result: print and keep it, and hold it to what was promised."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]


def parser(about: str | None, page: Path) -> argparse.ArgumentParser:
    """The options of a benchmark on one device."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--threads", type=int, help="of torch on the CPU; 1 is steadier on a busy machine")
    parser.add_argument("--json", metavar="FILE", nargs="?", const="-", help="the result as JSON")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"put the table into {page.relative_to(ROOT)}"
    )
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is not kept")
    return parser


def report(
    options: argparse.Namespace,
    result: dict[str, Any],
    table: str,
    page: tuple[Path, str],
    broken: Callable[[dict[str, Any]], list[str]],
) -> None:
    print(json.dumps(result, indent=1) if options.json == "-" else table)
    keep(options, result)
    if options.write_docs:
        write_table(*page, table)
    if options.check and (found := broken(result)):
        sys.exit("\n".join(found))


def keep(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write what has been measured so far, if there is a file for it."""
    if options.json not in (None, "-"):
        Path(options.json).write_text(json.dumps(result, indent=1), encoding="utf-8")


def aligned(rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines]


def write_table(page: Path, mark: str, table: str) -> None:
    """Replace the table behind this mark, and nothing else."""
    between = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, replaced = between.subn(
        lambda found: f"{found[1]}{table}\n{found[2]}", page.read_text(encoding="utf-8")
    )
    if replaced != 1:
        raise SystemExit(f"{page} has no place marked {mark}")
    page.write_text(text, encoding="utf-8")
