"""The forward call that a recorded call of a backward pass belongs to: its own line is that of backward()."""

from __future__ import annotations

from dataclasses import replace

from kernelscope.comparison.flow.calls_and_values import Call, Flow
from kernelscope.comparison.result import ComparedCall, Difference
from kernelscope.comparison.verdict.explained import shown

_MOST = 12  # calls: as far as the chain rule takes steps without a value of the forward pass


def with_forward(found: Difference, ours: Flow, theirs: Flow) -> Difference:
    """Of what the reference does and the other program does not, or else of what that one does."""
    places = (found.missing, ours), (found.call, theirs), (found.reference, ours)
    for compared, flow in places:
        call = _call(flow, compared) if compared is not None else None
        if call is None or call.phase != "backward":
            continue
        if (forward := _forward_of(flow, call)) is not None:
            return replace(found, forward=shown(forward))
    return found


def _call(flow: Flow, compared: ComparedCall) -> Call | None:
    return next((c for c in flow.calls if c.number == compared.index and c.name == compared.name), None)


def _forward_of(flow: Flow, call: Call) -> Call | None:
    """The call whose values it reads; of one that reads gradients alone, that of the nearest that does."""
    todo, seen = [call], {call.index}
    while todo and len(seen) <= _MOST:
        now = todo.pop(0)
        if (found := _reading_the_same(flow, now)) is not None:
            return found
        made_by = [flow.calls[c] for n in now.reads if (c := flow.values[n].call) >= 0]
        read_by = [flow.calls[c] for n in now.writes for c in flow.values[n].readers]
        new = [c for c in (*made_by, *read_by) if c.phase == "backward" and c.index not in seen]
        seen.update(c.index for c in new)
        todo += new
    return None


def _reading_the_same(flow: Flow, call: Call) -> Call | None:
    best, most = None, (0, 0, 0)
    given = {n for n in call.reads if not _is_gradient(flow, n)}
    near = {c for n in given for c in (flow.values[n].call, *flow.values[n].readers) if 0 <= c < call.index}
    for each in (flow.calls[c] for c in near):
        if each.phase != "forward" or each.is_copy:
            continue
        is_its = call.operator.startswith(each.operator)
        score = int(is_its), len(given.intersection((*each.reads, *each.writes))), each.index
        if score > most:
            best, most = each, score
    return best


def _is_gradient(flow: Flow, number: int) -> bool:
    call = flow.values[number].call
    return call >= 0 and flow.calls[call].phase == "backward"
