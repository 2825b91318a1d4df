"""The tools: each runs one command of kernelscope, and gives its answer in short.

Words of a command are made here: paths are real and allowed, values stand behind = in the same word. So
nothing that a client sends can become an option.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

from kernelscope.errors import RunError
from kernelscope.integrations.packages import needed
from kernelscope.store import folder
from kernelscope.text.amounts import counted

from . import answers, verdicts
from .allowed import Allowed, Refused, text, word, words
from .answers import Form, answer, call
from .command import CommandEnd, run_command

Answer = dict[str, Any]
READING = ("list_runs", "show", "stages", "diff", "query")
RUNNING = ("why", "record", "shadow", "determinism", "bisect", "reduce")
_MOST_CALLS, _MOST_ROWS = 30, 100
_READING_SECONDS = 120.0


class Tools:
    """What a client may call; `seconds` is the limit for one program."""

    def __init__(self, allowed: Allowed, seconds: float) -> None:
        self.allowed, self.seconds = allowed, seconds
        self._turn: Any = None  # a lock: one program at a time

    async def list_runs(self) -> Answer:
        """List the recorded runs, newest first: name, number of calls, how it ended, command."""
        found = []
        for root in self.allowed.roots:
            listed = (await self._read("ls", str(root)))["runs"]
            found += [each for each in listed if self.allowed.holds(self.allowed.home / each["path"])]
        if not found:
            steps = [call("record", "make a run", script="SCRIPT.py")] if self.allowed.scripts else []
            return answer("there are no runs; a user makes one with: kernelscope run script.py", *steps)
        runs = [
            {"run": self.allowed.shown(each["path"]), "calls": each["calls"], "status": each["status"],
             "command": shlex.join(each["command"] or ()), "error": each["error"]}
            for each in found
        ]  # fmt: skip
        newest = call("show", "the newest run", run=runs[0]["run"])
        return answer(counted(len(runs), "run"), newest, runs=runs)

    async def show(
        self,
        run: str = "",
        call: int | None = None,
        kernel: str = "",
        step: int | None = None,
        phase: str = "",
        first: int = 0,
        changed: bool = False,
        source: bool = False,
        crash: bool = False,
    ) -> Answer:
        """Show a run: its calls and findings; one call with its arguments; or how the program ended.

        run     name from list_runs; empty: the newest
        call    everything about this call; source adds the code of its kernel
        kernel, step, phase, first, changed    which calls to list; kernel is a pattern such as *mm*
        crash   how the program ended, and what was executing
        """
        if crash and (call is not None or kernel or step is not None or phase or first or changed):
            raise Refused("crash shows how the program ended: leave out the arguments that choose calls")
        path = self.allowed.run(run)
        name, script = self.allowed.shown(path), self._script_of(path)
        if crash:
            return answers.ending_answer(name, await self._read("show", str(path), "--crash"), script)
        given = _options(call=call, kernel=kernel, step=step, phase=phase, first=first, limit=_MOST_CALLS)
        given += ["--changed"] * changed + ["--source"] * source
        form = await self._read("show", str(path), *given)
        if call is None:
            return answers.calls_answer(name, form, script)
        return answers.call_answer(name, form, script)

    async def stages(self, run: str = "", graph: str = "", stage: str = "", kernel: str = "") -> Answer:
        """Show what the compiler did in a run: graphs, one stage of a graph as text, or one kernel.

        graph and stage    names that this tool lists, for example "0/0 forward" and post_grad
        kernel             a pattern: source, graph nodes and lines of your program
        """
        path = self.allowed.run(run)
        name = self.allowed.shown(path)
        if stage:
            given = _options(graph=graph, stage=stage)
            ended = await self._execute(["stages", str(path), *given], _READING_SECONDS)
            if ended.status:
                raise RunError(ended.complaint)
            other = call("stages", "all graphs and stages", run=name)
            return answer(f"stage {stage} of graph {graph}", other, text=ended.text)
        if graph and kernel:
            raise Refused("give graph or kernel, not both")
        form = await self._read("stages", str(path), *_options(kernel=kernel))
        if graph:
            form = form | {"graphs": [each for each in form["graphs"] if each["name"] == graph]}
            if not form["graphs"]:
                raise Refused(f"run {name} has no graph {graph!r}; call stages without graph for a list")
        return answers.kernels_answer(name, form) if kernel else answers.graphs_answer(name, form)

    async def diff(self, a: str, b: str) -> Answer:
        """Find the first call at which two runs of one program differ, and why. Both need hashes."""
        first, second = self.allowed.run(word(a, "a")), self.allowed.run(word(b, "b"))
        form = await self._read("diff", str(first), str(second), statuses=(0, 1))
        return verdicts.diff_answer(self.allowed.shown(first), self.allowed.shown(second), form)

    async def query(self, sql: str, run: str = "", limit: int = 50) -> Answer:
        """Run a SELECT over the tables of a run. Writing is refused.

        `call` has a row for each call (id, kernel, kind, step, phase, …), `hash` one for each hashed
        argument, `findings` one for each finding. SELECT name, sql FROM sqlite_master lists all tables.
        """
        path = self.allowed.run(run)
        most = f"--limit={max(1, min(int(limit), _MOST_ROWS))}"
        # A space, so that a query that starts with a comment is not taken for an option.
        form = await self._read("query", most, str(path), f" {text(sql, 'sql')}")
        names = _distinct(form["columns"])
        rows = [dict(zip(names, row, strict=True)) for row in form["rows"]]
        more = "; there are more" if form["more"] else ""
        other = call("show", "calls and findings of this run", run=self.allowed.shown(path))
        return answer(f"{counted(len(rows), 'row')}{more}", other, rows=rows)

    async def record(
        self,
        script: str,
        arguments: Sequence[str] = (),
        values: Literal["off", "hash", "stats"] = "hash",
        stop_on_nan: bool = False,
        time: bool = False,
    ) -> Answer:
        """Run a script and record each kernel that it launches. Needs --allow-run.

        values         what to record about tensors: off, hash, stats
        stop_on_nan    end the program at the first kernel that makes a NaN, and save its inputs
        time           measure how long each call runs
        """
        program, given = self.allowed.script(script), words(arguments, "arguments")
        options = [f"--values={_one_of(values, 'values', ('off', 'hash', 'stats'))}"]
        options += ["--stop-on=nan"] * bool(stop_on_nan) + ["--time"] * bool(time)
        async with self._alone():
            path = self._free(program.stem, folder.SUFFIX)
            ended = await self._execute(["run", *options, f"-o{path}", str(program), *given], self.seconds)
        if not path.is_dir():
            raise RunError(ended.complaint or "the script could not be started")
        name = self.allowed.shown(path)
        steps = [call("show", "what ran, and findings", run=name)]
        if ended.status:
            steps.insert(0, call("show", "how the program ended", run=name, crash=True))
        sentence = f"recorded as {name}; the script ended with exit status {ended.status}"
        return answer(sentence, *steps, run=name, status=ended.status, printed=ended.complaint)

    async def shadow(self, script: str, arguments: Sequence[str] = ()) -> Answer:
        """Run a script and name the compiled kernel whose result differs from eager. Needs --allow-run."""
        form = await self._run("shadow", script, arguments)
        return verdicts.shadow_answer(form, _program(script, arguments))

    async def determinism(self, script: str, arguments: Sequence[str] = (), runs: int = 3) -> Answer:
        """Run a script several times and name the kernels that give varying results. Needs --allow-run."""
        form = await self._run("determinism", script, arguments, f"--runs={max(2, min(int(runs), 20))}")
        form = form | {"path": self.allowed.shown(Path(self.allowed.home, form["path"]))}
        return verdicts.determinism_answer(form, _program(script, arguments))

    async def bisect(
        self,
        script: str,
        arguments: Sequence[str] = (),
        fails_on: Literal["", "shadow", "exception", "nan"] = "",
        message: str = "",
    ) -> Answer:
        """Find the setting, pass, lowering, fusion or kernel that makes a script fail. Needs --allow-run.

        fails_on    shadow: a result differs from eager; exception: it raises, crashes or hangs; nan
        message     count only exceptions whose message contains this text
        """
        kinds = ("", "shadow", "exception", "nan")
        given = _options(fails_on=_one_of(fails_on, "fails_on", kinds), message=message)
        form = await self._run("bisect", script, arguments, *given)
        return verdicts.bisect_answer(form, _program(script, arguments))

    async def reduce(self, script: str, arguments: Sequence[str] = ()) -> Answer:
        """Write a script with the smallest graph that still fails in the same way. Needs --allow-run."""
        stem = f"{self.allowed.script(script).stem}-reduced"
        form = await self._run("reduce", script, arguments, f"-o{self._free(stem)}")
        return verdicts.reduce_answer(form, _program(script, arguments))

    async def why(self, script: str, arguments: Sequence[str] = (), quick: bool = False) -> Answer:
        """Find out what is wrong with a script, with all other commands. Takes minutes. Needs --allow-run.

        quick    do not search for the part of the compiler (bisect, reduce)
        """
        # It ends itself a little earlier, with what it knows by then.
        given = [f"--timeout={max(1, self.seconds * 0.9):g}", *["--quick"] * bool(quick)]
        return verdicts.why_answer(await self._run("why", script, arguments, *given))

    async def _read(self, command: str, *given: str, statuses: Sequence[int] = (0,)) -> Any:
        ended = await self._execute([command, "--json", *given], _READING_SECONDS)
        return _form(ended, statuses)

    async def _run(self, command: str, script: str, arguments: Sequence[str], *given: str) -> Any:
        program, rest = self.allowed.script(script), words(arguments, "arguments")
        async with self._alone():
            ended = await self._execute([command, "--json", *given, str(program), *rest], self.seconds)
        return _form(ended, (0, 1, 2))

    async def _execute(self, given: Sequence[str], seconds: float) -> CommandEnd:
        return await run_command(given, self.allowed.home, seconds)

    def _alone(self) -> Any:
        """Programs run one after the other: their folders are numbered, and the machine is theirs."""
        self._turn = self._turn or needed("anyio", "mcp", "kernelscope mcp").Lock()
        return self._turn

    def _free(self, stem: str, suffix: str = "") -> Path:
        """A name in the folder of runs that is not taken; the command makes it."""
        home = self.allowed.home / folder.HOME
        number = max(folder.numbered(home, stem, suffix), default=0) + 1
        return home / f"{stem}-{number}{suffix}"

    def _script_of(self, path: Path) -> Form:
        """The script that a run was made of, if it may be run again: arguments for the tools that run one."""
        invocation = folder.read_invocation(path)
        if invocation is None or len(invocation.command) < 2:
            return {}
        script = Path(invocation.cwd, invocation.command[1])
        try:
            return _program(self.allowed.shown(self.allowed.script(str(script))), invocation.command[2:])
        except Refused:
            return {}


def _program(script: str, arguments: Sequence[str]) -> Form:
    return {"script": script, "arguments": list(arguments)}


def _options(**given: Any) -> list[str]:
    """--name=value of those that have a value."""
    kept = {name: value for name, value in given.items() if value not in (None, "")}
    return [f"--{name.replace('_', '-')}={text(str(value), name)}" for name, value in kept.items()]


def _distinct(columns: Sequence[str]) -> list[str]:
    """Names of columns, with a number where one occurs again: a row with both values is not a dictionary."""
    seen: list[str] = []
    for column in columns:
        numbered = (f"{column}_{number}" for number in count(2))
        seen.append(column if column not in seen else next(each for each in numbered if each not in seen))
    return seen


def _one_of(given: str, name: str, known: Sequence[str]) -> str:
    if given not in known:
        raise Refused(f"{name} must be one of {', '.join(filter(None, known))}")
    return given


def _form(ended: CommandEnd, statuses: Sequence[int]) -> Any:
    if ended.form is None or ended.status not in statuses:
        problem = ended.form.get("problem") if isinstance(ended.form, dict) else ""
        raise RunError(problem or ended.complaint or f"the command ended with status {ended.status}")
    return ended.form
