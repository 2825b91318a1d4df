"""A script that launches one recorded call alone and checks its output."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from keyword import iskeyword
from typing import Any

from kernelscope.analysis.random_operators import draws
from kernelscope.errors import RunError
from kernelscope.events import TensorSpec
from kernelscope.model.call import KernelCall
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted

from .eager_part import EagerPart, eager_part
from .launching import Launching, launching
from .saved_arguments import Tensors, argument_entry, place_in_memory, saved_entry
from .script_parts import (
    Script,
    docstring,
    draws_by_seed,
    ending,
    flags,
    laid_out,
    registering,
    rule,
    tables,
    unreproducible,
)
from .variable_values import VariableValues

# What the text of a launch, or of eager, may use.
_TAKEN = ("torch", "triton", "tl", "device", "inf", "nan", "math", "ctypes", "base", "named", "returned")


def call_script(run: StoredRun, index: int, imports: Sequence[str] = ()) -> Script:
    """The script for call `index`; modules in `imports` register the operators that it needs."""
    found = run.select(first=index, limit=1)
    if not found or found[0].index != index:
        raise RunError(f"{run.path} has no call {index}; it has {counted(len(run), 'call')}")
    call = found[0]
    names = dict(enumerate(uniquely([arg.name for arg in call.arguments], _TAKEN)))
    tensors, notes = Tensors(run), list[str]()
    given = {
        names[i]: argument_entry(call, i, names[i], tensors, notes)
        for i, arg in enumerate(call.arguments)
        if arg.tensor is not None and not arg.returned
    }
    place_in_memory(call, given, {i: n for i, n in names.items() if n in given})
    launch = launching(call, names)
    values = VariableValues(run, call, launch.wrapper)
    held: dict[str, TensorSpec] = {}  # variables that the arguments are computed from: arguments, too
    for name in launch.variables:
        value = values.value_before(name)
        if value is None or name in given:
            raise unreproducible(call, f"the value of {name} was not recorded")
        given[name] = saved_entry("in", value, name, tensors)
        held[name] = value.spec
    part = eager_part(run, call, names, launch.wrapper, launch.text, tensors, values, held)
    if part is None:
        if call.kind != "op":  # which is eager itself
            can_stage = call.kind != "gcu" and call.graph is not None
            how = ": record with --stages to have the FX nodes of each kernel" if can_stage else ""
            notes.append(f"not compared with eager{how}")
    else:
        notes += [f"not compared with eager: {why}" for why in part.unknown]
        given |= part.context
    recorded = _recorded(call, names, tensors, notes)
    if call.error:
        notes.append(f"during the recording, the launch raised {call.error}")
    text = _text(run, call, names, given, recorded, launch, part, notes, imports)
    return Script(f"repro_call_{index}", text, tensors.held, notes)


def _recorded(
    call: KernelCall, names: dict[int, str], tensors: Tensors, notes: list[str]
) -> dict[str, dict[str, Any]]:
    numbers = {a.name: v for a, v in zip(call.arguments, call.args, strict=True) if a.tensor is None}
    if draws(call.kernel_name, numbers) or "rng_state" in call.kernel_name:
        notes.append("the kernel draws random numbers: its output is not compared with the recorded one")
        return {}
    files = tensors.run.saved_tensors(call.index)
    found: dict[str, dict[str, Any]] = {}
    noted = tensors.run.noted_findings()
    watched = {each.arg for each in noted if each.kind == "watch" and each.call == call.index}
    for i, arg in enumerate(call.arguments):
        if arg.tensor is not None and (i, "after") in files:
            saved = tensors.add(files[i, "after"], f"{names[i]} after")
            found[names[i]] = {"saved": saved, "dtype": arg.tensor.dtype, "shape": arg.tensor.shape}
            if arg.name in watched:
                found[names[i]]["watched"] = True
    if not found:
        notes.append("not compared with the recorded output, which was not saved (--values save)")
    elif any(note.endswith("its values were not saved") for note in notes):
        notes.append("not compared with the recorded output: the inputs are generated")
        return {}
    return found


def _text(
    run: StoredRun,
    call: KernelCall,
    names: dict[int, str],
    given: dict[str, dict[str, Any]],
    recorded: dict[str, dict[str, Any]],
    launch: Launching,
    part: EagerPart | None,
    notes: list[str],
    imports: Sequence[str],
) -> str:
    origin = f"\nIt computes {call.origin}." if call.origin else ""
    own = [n for n, about in given.items() if about["role"] != "context"]
    returned = [names[i] for i, arg in enumerate(call.arguments) if arg.returned]
    result = f"named(returned, {returned!r}, [{', '.join(own)}])" if returned else "{}"
    what = f"Call {call.index} of a recorded run: {call.kernel_name} [{call.kind}], alone.{origin}"
    blocks = [
        docstring(what, run.info.versions),
        *[f"import {name}" for name in imports],
        *flags(run, call),
        rule("the kernel"),
        *launch.before,
        f"def launch({', '.join(own)}):",
        *[f"    {line}" for line in launch.lines],
        f"    return {result}",
    ]
    eager, draws_numbers = "None", False
    if part is not None and part.outputs:
        code = "\n".join(line.code for line in part.lines)
        eager, draws_numbers = "eager", draws_by_seed(code)
        blocks += [
            rule("what it should compute: the nodes of the FX graph"),
            *registering(code),
            f"def eager({', '.join(given)}):",
            *[f"    {line}" for line in part.bind],
            *[f"    {line.statement}" for line in part.lines],
            "    return {" + ", ".join(f"{k!r}: {v}" for k, v in part.outputs.items()) + "}",
        ]
    blocks += tables(given, recorded, notes)
    return laid_out([*blocks, *ending(eager, launch.first, draws=draws_numbers)])


def uniquely(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Names that can be variables of a script, each once."""
    made: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name) or "value"
        plain = f"_{plain}" if plain[0].isdigit() else f"{plain}_" if iskeyword(plain) else plain
        number, each = 2, plain
        while each in made or each in taken:
            each, number = f"{plain}_{number}", number + 1
        made.append(each)
    return made
