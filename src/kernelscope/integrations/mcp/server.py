"""The server: registers the tools, and speaks the protocol on stdin and stdout."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.integrations.packages import needed

from .allowed import Refused
from .command import TooLong
from .tools import READING, RUNNING, Tools

SKILL = Path(__file__).with_name("SKILL.md")
_WHO = "kernelscope mcp"
_HOMES = (("mcp.server.mcpserver", "MCPServer"), ("mcp.server.fastmcp", "FastMCP"))


def serve(tools: Tools) -> None:
    """Answer until the client closes stdin."""
    server_of(tools).run()


def server_of(tools: Tools) -> Any:
    """The server of mcp with all tools; mcp 2 and mcp 1 differ in the names of its modules."""
    needed("mcp", "mcp", _WHO)
    home, name = _HOMES[find_spec(_HOMES[0][0]) is None]
    failure = import_module(f"{home}.exceptions").ToolError
    made = [_tool(home, tools, each, failure) for each in tool_names(tools)]
    server = getattr(import_module(home), name)
    return server("kernelscope", instructions=_instructions(), tools=made, log_level="WARNING")


def _tool(home: str, tools: Tools, name: str, failure: type[Exception]) -> Any:
    """One tool; an argument that it does not have is an error, not ignored."""
    reads = name in READING
    hints = {"readOnlyHint": reads, "destructiveHint": False, "openWorldHint": not reads}
    notes = import_module("mcp.types").ToolAnnotations(**hints)
    method = _telling(getattr(tools, name), failure)
    made = import_module(f"{home}.tools").Tool.from_function(method, name=name, annotations=notes)
    model = made.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    for field in model.model_fields.values():
        if field.annotation in (int, int | None):
            field.metadata.append(import_module("pydantic").BeforeValidator(_no_truth_value))
    model.model_rebuild(force=True)
    made.parameters["additionalProperties"] = False
    return made


def _no_truth_value(given: Any) -> Any:
    """`call: true` is a mistake, which pydantic would take for call 1."""
    if isinstance(given, bool):
        raise ValueError("give a number, not true or false")
    return given


def tool_names(tools: Tools) -> list[str]:
    """Tools that run programs are listed only where the user allows some program."""
    return [*READING, *(RUNNING if tools.allowed.scripts else ())]


def tool_list(tools: Tools) -> list[dict[str, Any]]:
    """For --json: what a client would be offered."""
    return [
        {"name": name, "description": inspect.getdoc(getattr(tools, name)), "runs_programs": name in RUNNING}
        for name in tool_names(tools)
    ]


def skill_text() -> str:
    """How an agent goes from a symptom to a cause."""
    return SKILL.read_text(encoding="utf-8")


def _instructions() -> str:
    """The same without the lines about the file itself."""
    return skill_text().partition("---\n")[2].partition("---\n")[2].strip()


def _telling(method: Callable[..., Any], failure: type[Exception]) -> Callable[..., Any]:
    """What a user would read on stderr becomes the text of a failed call; nothing ends the server."""

    @wraps(method)
    async def tool(**given: Any) -> Any:
        try:
            return await method(**given)
        except (Refused, RunError, TooLong) as error:
            raise failure(str(error)) from None

    return tool
