"""Which innermost loops may run several iterations at once, and which variables they reduce into."""

from __future__ import annotations

from dataclasses import dataclass

from kernelscope.gcu.choreo.cpp.declared.aliases import Aliases, closed
from kernelscope.gcu.choreo.device_functions import PURE
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.walk import is_atomic, names, nodes, root

_SIMPLE = (tree.Store, tree.DeclareScalar, tree.Assign, tree.Remark)


@dataclass(frozen=True)
class Reduction:
    """`total += e` or `most = __max(most, e)`."""

    name: str
    op: str  # "+", "*", "max", "min"
    value: tree.Expr


def reduction(statement: tree.Stmt) -> Reduction | None:
    if not isinstance(statement, tree.Assign):
        return None
    name, value = statement.name, statement.value
    if statement.op in ("+=", "*=") and name not in names(value):
        return Reduction(name, statement.op[0], value)
    me = tree.Name(name)
    match value:
        case tree.Binary(op="+" | "*") if value.left == me and name not in names(value.right):
            return Reduction(name, value.op, value.right)
        case (
            tree.Builtin(name="__max" | "__min", args=(first, second))
            | tree.CallValue(name="dev_max" | "dev_min", args=(first, second))
        ) if first == me:
            return Reduction(name, value.name[-3:], second) if name not in names(second) else None
    return None


def vectorises(loop: tree.Foreach, variables: set[str], known: Aliases) -> bool:
    """Whether iterations over the loop's last variable are independent but for reductions."""
    if not all(isinstance(each, _SIMPLE) for each in loop.body):
        return False
    if any(isinstance(each, tree.CallValue) and each.name not in PURE for each in nodes(loop.body)):
        return False  # who knows what it does
    if any(is_atomic(each) for each in nodes(loop.body)):
        return False
    own = {each.name for each in loop.body if isinstance(each, tree.DeclareScalar)}
    reduced = set()
    for each in loop.body:
        if isinstance(each, tree.Assign) and each.name not in own:
            found = reduction(each)
            if found is None:
                return False
            reduced.add(each.name)
    for each in loop.body:
        if not (isinstance(each, tree.Assign) and each.name in reduced) and reduced & names(each):
            return False
        if isinstance(each, tree.Assign) and each.name in reduced:
            found = reduction(each)
            if found is not None and reduced & names(found.value):
                return False
    return _stores_apart(loop, variables, known)


def _stores_apart(loop: tree.Foreach, variables: set[str], known: Aliases) -> bool:
    stores = [each.target for each in loop.body if isinstance(each, tree.Store)]
    places: dict[str, set[tuple[tree.Expr, ...]]] = {}
    for each in nodes(loop.body):
        if isinstance(each, tree.At):
            for name in closed({root(each.of)}, known):
                places.setdefault(name, set()).add((each.of, *each.index))
    for target in stores:
        if any(len(places[name]) != 1 for name in closed({root(target.of)}, known)):
            return False
        if not any(_moves(index, variables) for index in target.index):
            return False
    return True


def _moves(e: tree.Expr, variables: set[str]) -> bool:
    """Whether another value of the variable always gives another value of the expression."""
    match e:
        case tree.Name():
            return e.id in variables
        case tree.Binary(op="+"):
            left, right = bool(variables & names(e.left)), bool(variables & names(e.right))
            return left != right and _moves(e.left if left else e.right, variables)
        case tree.Binary(op="*"):
            sides = (e.left, e.right)
            return any(
                _moves(a, variables) and isinstance(b, tree.Int) and b.value != 0
                for a, b in (sides, sides[::-1])
            )
        case tree.Binary(op="-"):
            return _moves(e.left, variables) and not variables & names(e.right)
        case tree.Tuple():
            return any(_moves(item, variables) for item in e.items)
    return False


def can_stop(lines: list[str]) -> bool:
    """Whether something of these lines of C++ may stop the whole call."""
    return any(each.lstrip().startswith("choreo::hold(") for each in lines)
