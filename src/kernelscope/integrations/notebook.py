"""For notebooks: `%load_ext kernelscope`, then `%%kscope` records a cell and shows what ran below it.

Example:
    %load_ext kernelscope

    %%kscope --values stats
    model(x).sum().backward()
"""

from __future__ import annotations

import argparse
import ast
import html
import shlex
from pathlib import Path
from typing import Any

from kernelscope.config import Values
from kernelscope.errors import RunError
from kernelscope.report.file import report
from kernelscope.store import folder
from kernelscope.store.stored_run import load

from .packages import needed

_KINDS = ("off", "hash", "stats", "save")
_HEIGHT = 640  # pixels of the page
_MOST_SHOWN = 5_000  # calls in the page of a cell


class _Words(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise RunError(f"%%kscope: {message}")


def _parser() -> _Words:
    about = "Run a cell, record it on disk, and show what ran below it."
    parser = _Words(prog="%%kscope", description=about, add_help=False)
    add = parser.add_argument
    add("name", nargs="?", default="", help="variable that gets the run")
    add("--values", choices=_KINDS, default="hash", help="what to record about tensor values (default hash)")
    add("--time", action="store_true", help="measure how long each call runs")
    add("--ops", choices=("graph", "all"), default="graph", help="all: record eager operators too")
    add("-o", dest="path", default="", help="folder of the run; default: kscope-runs/cell-1, and so on")
    add("--no-page", dest="page", action="store_false", help="show the summary only")
    add("--height", type=int, default=_HEIGHT, help="height of the page in pixels (default 640)")
    add("--help", "-h", action="store_true", help="show this text, and run nothing")
    return parser


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext kernelscope` calls."""
    shell.register_magic_function(lambda line, cell: record_cell(shell, line, cell), "cell", "kscope")


def unload_ipython_extension(shell: Any) -> None:
    shell.magics_manager.magics["cell"].pop("kscope", None)


def record_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell, record it on disk, and show its run: a summary, and the page with its panels."""
    from kernelscope.recording import record

    display = needed("IPython.display", "notebook", "%%kscope")
    given = _parse(line)
    if given.help:
        print(_parser().format_help())
        return
    _check(shell, cell)
    values: Values = given.values
    path = folder.named(given.path) if given.path else _next_path()
    try:
        with record(values=values, time=given.time, ops=given.ops, stages=True, path=path):
            result = _run(shell, cell)
    except (RunError, ValueError) as error:
        raise RunError(f"%%kscope: {error}") from None
    run = load(path)
    if given.name:
        shell.push({given.name: run})
    display.display(run)
    if given.page and len(run):
        display.display(display.HTML(framed(report(run, limit=_MOST_SHOWN), given.height)))
    result.raise_error()


def _parse(line: str) -> argparse.Namespace:
    try:
        given = _parser().parse_args(shlex.split(line))
    except ValueError as error:  # a quotation that is not closed
        raise RunError(f"%%kscope: {error}") from None
    if given.name and not given.name.isidentifier():
        raise RunError(f"%%kscope: {given.name!r} cannot be the name of a variable; write: %%kscope run")
    return given


def _check(shell: Any, cell: str) -> None:
    """What cannot be run is not recorded either: errors of syntax, and what needs the event loop."""
    code = shell.transform_cell(cell)
    ast.parse(code)
    if shell.should_run_async(cell, transformed_cell=code):
        raise RunError(
            "%%kscope: the cell has await outside of a function, which a magic cannot run; "
            "write `with kernelscope.record(path=...) as run:` in the cell instead"
        )


def _run(shell: Any, cell: str) -> Any:
    """The cell as usual, but that its exception is shown once, where the magic raises it again."""
    names = ("showtraceback", "showsyntaxerror")
    for name in names:
        setattr(shell, name, lambda *_, **__: None)
    try:
        return shell.run_cell(cell)
    finally:
        for name in names:
            delattr(shell, name)


def framed(page: str, height: int) -> str:
    """A page inside of a frame that has no access to the notebook: contents of a run stay contents."""
    source = html.escape(page, quote=True)
    style = "width:100%;border:1px solid #8888"
    frame = f'<iframe sandbox="allow-scripts" style="{style}" height="{height}" srcdoc="{source}"></iframe>'
    return f"<div>{frame}</div>"  # IPython warns about HTML that is a frame, and its own cannot be closed off


def _next_path() -> Path:
    """kscope-runs/cell-1, or the first number after those that exist."""
    home = Path(folder.HOME)
    return home / f"cell-{max(folder.numbered(home, 'cell', folder.SUFFIX), default=0) + 1}{folder.SUFFIX}"
