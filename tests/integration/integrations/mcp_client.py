"""A client of `kernelscope mcp`, made with the official library: it starts the server and calls its tools."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

SRC = Path(__file__).parents[3] / "src"
Result = TypeVar("Result")


class Failed(Exception):
    """The server answered that the call failed; its text."""


@dataclass
class Client:
    """An open session."""

    session: Any

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.session.list_tools()).tools}

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        found = await self.session.call_tool(name, arguments)
        plain = found.model_dump()
        if plain.get("is_error", plain.get("isError")):
            raise Failed(found.content[0].text)
        return dict(plain.get("structured_content") or plain["structuredContent"])

    async def follow(self, answer: dict[str, Any], tool: str) -> dict[str, Any]:
        """Make the call of this tool that the answer suggests."""
        [step] = [each for each in answer["next"] if each["tool"] == tool][:1]
        return await self(tool, **step["arguments"])


def with_server(
    cwd: Path, options: Sequence[str], work: Callable[[Client], Awaitable[Result]], **environment: str
) -> Result:
    """Start the server in a folder, and do something with it."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    given = os.environ | {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"} | environment
    words = ["-m", "kernelscope", "mcp", *options]
    started = StdioServerParameters(command=sys.executable, args=words, env=given, cwd=str(cwd))

    async def talk() -> Result:
        async with stdio_client(started) as (reading, writing), ClientSession(reading, writing) as session:
            await session.initialize()
            return await work(Client(session))

    return asyncio.run(talk())
