"""What `make docs` adds to the pages: each command's options and examples, as its own parser has them."""

from __future__ import annotations

import argparse
import html
from typing import Any

from mkdocs.structure.files import File

from kernelscope.cli import parser_for
from kernelscope.cli.command_list import COMMANDS

MARKER = "<!-- options -->"  # in a page of docs/commands: here they go


def on_config(config: Any) -> Any:
    pages = [{name: f"commands/{name}.md"} for name in COMMANDS]
    config.nav = [{"Commands": pages} if "Commands" in entry else entry for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """A command that nobody has written a page for has one all the same."""
    for name, (_, what) in COMMANDS.items():
        path = f"commands/{name}.md"
        if files.get_file_from_path(path) is None:
            text = f"# kernelscope {name}\n\n{html.escape(what.capitalize())}.\n\n{MARKER}\n"
            files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder, _, name = page.file.src_uri.rpartition("/")
    if folder != "commands" or MARKER not in markdown:
        return markdown
    return markdown.replace(MARKER, options_of(name.removesuffix(".md")))


def options_of(command: str) -> str:
    """Usage, options and examples of a command, in Markdown."""
    [choices] = [a.choices for a in parser_for(command)._actions if isinstance(a, argparse._SubParsersAction)]
    parser: argparse.ArgumentParser = dict(choices)[command]
    parser.color = False  # Python 3.14 colours it when a terminal looks on
    usage = parser.format_usage().removeprefix("usage: ").strip()
    rows = [_row(action) for action in parser._actions if action.help is not argparse.SUPPRESS]
    table = "\n".join(["| option | |", "|---|---|", *rows])
    examples = (parser.epilog or "").strip()
    return f"## Usage\n\n```text\n{usage}\n```\n\n{table}\n\n## More\n\n```text\n{examples}\n```\n"


def _row(action: argparse.Action) -> str:
    value = action.metavar if action.nargs != 0 else ""
    if action.choices is not None and not action.metavar:
        value = "|".join(map(str, action.choices))
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    shown = f"{names} {value}".strip() if action.option_strings else names
    said = (action.help or "").replace("%%", "%")
    return f"| <code>{_cell(shown)}</code> | {_cell(said)} |"


def _cell(text: str) -> str:
    return html.escape(text).replace("|", "&#124;").replace("\n", " ")
