"""The type of the number that a function returns."""

from __future__ import annotations

from kernelscope.gcu.choreo.cpp.values import Data, Scalar, Scope
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.choreo.syntax.walk import nodes, root


def type_of(e: tree.Expr, scope: Scope, body: tree.Block) -> str:
    """The type of a returned number, as far as the text tells."""
    match e:
        case tree.Int() | tree.Count():
            return "s32"
        case tree.Float():
            return "f32" if e.text[-1] in "fF" else "f64"
        case tree.Builtin() if e.name.startswith("__cast_"):
            return tree.AS_ELEMENT.get(e.name.removeprefix("__cast_"), "")
        case tree.At():
            view = scope.find(root(e))
            return view.element if isinstance(view, Data) else ""
        case tree.Binary():
            kinds = {type_of(e.left, scope, body), type_of(e.right, scope, body)}
            return kinds.pop() if len(kinds) == 1 else ""
        case tree.Name():
            known = scope.find(e.id)
            if isinstance(known, Scalar):
                return tree.AS_ELEMENT.get(known.type, "")
            if known is None and e.id not in made_in(body):
                raise ChoreoError(f"`{e.id}` is not declared", e.span)
            found = [n.type for n in nodes(body) if isinstance(n, tree.DeclareScalar) and n.name == e.id]
            return tree.AS_ELEMENT.get(found[0], "") if len(set(found)) == 1 else ""
    return ""


def made_in(body: tree.Block) -> set[str]:
    """The names that statements and loops make."""
    bound = {name for n in nodes(body) if isinstance(n, tree.Bind) for name in (*n.names, n.whole)}
    return bound | {getattr(n, "name", "") for n in nodes(body)}
