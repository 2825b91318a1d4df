"""What kind of FX node it is."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_flatten

from .custom_operators import is_custom

aten, prims = torch.ops.aten, torch.ops.prims
# Inductor registers these when it is first used.
import torch._inductor.inductor_prims  # noqa: E402

SEEDS = prims.inductor_seeds.default
LOOKUP_SEED = prims.inductor_lookup_seed.default
RANDOM = prims.inductor_random.default
RANDINT = prims.inductor_randint.default
BY_MEMORY = {aten.as_strided.default, aten.view.dtype, aten.view_as_complex.default}  # how its argument lies
_DRAWS = {LOOKUP_SEED, RANDOM, RANDINT}
_RESHAPES = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.alias.default, aten.detach.default,
}  # fmt: skip

# Registered as having side effects: it raises, or does nothing.
_HARMLESS = ("aten::_linalg_check_errors",)
_LIKE_FIRST = {
    aten.ones_like, aten.zeros_like, aten.full_like, aten.empty_like, aten.new_zeros, aten.new_ones,
    aten.new_full, aten.new_empty, aten.new_empty_strided,
}  # fmt: skip
_LIKE_SECOND = {  # grad_output, self, …: where the gradients go is known from the indices or the sizes
    aten.max_pool2d_with_indices_backward, aten.max_pool3d_with_indices_backward,
    aten.adaptive_max_pool2d_backward, aten.adaptive_max_pool3d_backward, aten.avg_pool2d_backward,
    aten.avg_pool3d_backward, aten._adaptive_avg_pool2d_backward, aten._adaptive_avg_pool3d_backward,
    aten.fractional_max_pool2d_backward, aten.fractional_max_pool3d_backward,
    aten.reflection_pad1d_backward, aten.reflection_pad2d_backward, aten.reflection_pad3d_backward,
    aten.replication_pad1d_backward, aten.replication_pad2d_backward, aten.replication_pad3d_backward,
}  # fmt: skip
_PLACES = {aten.argmax, aten.argmin, aten.argsort}
_PLACES_TOO = {  # beside the values
    aten.max, aten.min, aten.sort, aten.topk, aten.median, aten.nanmedian, aten.mode, aten.kthvalue,
    aten.cummax, aten.cummin,
}  # fmt: skip


def value_of(node: Node) -> Any:
    """The fake value that the compiler had for it."""
    return node.meta.get("val")


def dtype_of(node: Node) -> torch.dtype | None:
    value = value_of(node)
    if isinstance(value, tuple | list):
        value = next((v for v in value if isinstance(v, torch.Tensor)), None)
    return value.dtype if isinstance(value, torch.Tensor) else None


def is_symbolic(node: Node) -> bool:
    """A size rather than a tensor."""
    return isinstance(value_of(node), int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def is_copy(node: Node) -> bool:
    """Has the values of its second argument; of the first only shape and dtype matter."""
    return node.target in (aten.copy_.default, aten.copy.default)


def is_random(node: Node) -> bool:
    """Draws numbers from a seed that is among its arguments."""
    return node.target in _DRAWS


def is_given(node: Node) -> bool:
    """Makes random numbers that cannot be made again: its result is used as it is."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return is_given(node.args[0])
    is_of_state = node.target is SEEDS or saves_generator(node)
    return is_of_state or draws_from_generator(node.target, node.args, node.kwargs)


def saves_generator(node: Node) -> bool:
    """Draws with the operator that is its first argument, and returns the generator's state before, too."""
    saves = getattr(node.target, "_name", "") == "run_and_save_rng_state"
    return saves and (node.args[0] is SEEDS or draws_from_generator(node.args[0], node.args[1:], node.kwargs))


def draws_from_generator(target: Any, args: Any, kwargs: Any) -> bool:
    """Of torch; not with a dropout of 0, nor in a backward that is given the state which its forward had."""
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()) or target in _DRAWS:
        return False
    schema = getattr(target, "_schema", None)
    arguments = {a.name: a for a in schema.arguments} if schema is not None else {}
    if "philox_seed" in arguments:
        return False
    named = named_arguments(schema, args, kwargs) if schema is not None else {}
    name = next((name for name in ("dropout_p", "p", "dropout") if name in arguments), "")
    chance = arguments[name].default_value if name and named.get(name) is None else named.get(name)
    return not isinstance(chance, int | float) or chance != 0


def is_view(node: Node) -> bool:
    """Computes nothing."""
    return _makes_views(node.target)


@functools.cache
def _makes_views(target: Any) -> bool:
    if target is operator.getitem:
        return True
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return any(a.alias_info is not None for a in schema.arguments) or target in _RESHAPES


def reshaped(node: Node) -> Node | None:
    """What this node only gives another shape to, or not even that."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    return node.args[0] if node.target in _RESHAPES or _changes_nothing(node, node.args[0]) else None


def _changes_nothing(node: Node, source: Node) -> bool:
    """A view of the whole, as it was: `expand` to the same shape, for which lowering makes no buffer."""
    if not is_view(node):
        return False
    new, old = value_of(node), value_of(source)
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor):
        return False
    return bool(_layout(new) == _layout(old))


def _layout(fake: torch.Tensor) -> Any:
    if fake.layout is not torch.strided:
        return object()
    sizes = (*fake.shape, *fake.stride(), fake.storage_offset())
    # As text: comparing sizes that are not known yet would add a guard.
    return fake.dtype, fake.is_conj(), fake.is_neg(), fake.dim(), tuple(map(str, sizes))


def base_of(node: Node) -> Node:
    """The node whose memory it views: itself, if it is not a view."""
    while is_view(node):
        parent = node.args[0]
        is_item = node.target is operator.getitem
        if not isinstance(parent, Node) or (is_item and not is_view(parent)):
            break
        node = parent
    return node


def results_of(module: Any) -> list[Any]:
    """What a graph returns, flat: nodes and constants."""
    output = next(n for n in reversed(list(module.graph.nodes)) if n.op == "output")
    return tree_flatten(output.args[0])[0]


def written_names(schema: Any) -> list[str]:
    """The arguments that an operator writes to."""
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def named_arguments(schema: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    return dict(zip([a.name for a in schema.arguments], args, strict=False)) | dict(kwargs)


def writes(node: Node) -> list[Node]:
    """The nodes whose memory it writes to."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return []
    named = named_arguments(schema, node.args, node.kwargs)
    found = [named.get(name) for name in written_names(schema)]
    flat = [v for part in found for v in (part if isinstance(part, tuple | list) else [part])]
    return [v for v in flat if isinstance(v, Node)]


def hides_its_writes(node: Node) -> bool:
    """It returns nothing of what it writes to: readers take the argument itself."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return False
    if not schema.returns:
        return not node.users  # else its users take it for what it wrote: _foreach_add_
    returned = {name for r in schema.returns if r.alias_info is not None for name in r.alias_info.before_set}
    written = [a.alias_info for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return any(not returned & set(alias.before_set) for alias in written)


def returned_target(node: Node) -> Node | None:
    """The one tensor that it writes to, if it returns that: `index_put_`."""
    targets, schema = writes(node), getattr(node.target, "_schema", None)
    if len(targets) != 1 or schema is None or len(schema.returns) != 1:
        return None
    alias = schema.returns[0].alias_info
    return targets[0] if alias is not None and alias.is_write else None


def whole_of(node: Node) -> Node:
    """What an operator returns, of one of the things that it returns."""
    source = node.args[0] if node.target is operator.getitem else None
    return source if isinstance(source, Node) else node


def is_user_kernel(node: Node) -> bool:
    """A Triton kernel of the user's, launched in compiled code; it writes to what it is given."""
    return getattr(node.target, "_name", "") == "triton_kernel_wrapper_mutation"


def kernel_arguments(node: Node) -> dict[str, Any]:
    """What a user's kernel is given, by its own names."""
    found: dict[str, Any] = node.kwargs["kwargs"]  # type: ignore[assignment]
    return found


def is_uninitialised(node: Node) -> bool:
    return _makes_memory(node.target)


@functools.cache
def _makes_memory(target: Any) -> bool:
    return str(target).startswith(("aten.empty", "aten.new_empty"))


@functools.cache
def is_packed_linear(target: Any) -> bool:
    """A product with a weight in MKL's own layout, beside which the weight itself is given."""
    return str(target).split(".")[:2] == ["mkl", "_mkl_linear"]


def only_shapes(node: Node) -> list[Node]:
    """Arguments of which an operator uses the shape alone: compiled code need not have their values."""
    if is_packed_linear(node.target):
        return [node.args[1]] if isinstance(node.args[1], Node) else []
    packet = getattr(node.target, "overloadpacket", None)
    index = 0 if packet in _LIKE_FIRST else 1 if packet in _LIKE_SECOND else None
    found = node.args[index] if index is not None and index < len(node.args) else None
    return [found] if isinstance(found, Node) else []


def is_index_of_one(node: Node) -> bool:
    """The place of a largest, smallest or other element among one: 0, whatever that element is."""
    is_item = node.target is operator.getitem and len(node.args) > 1 and node.args[1] == 1
    whole = node.args[0] if is_item else node
    if not isinstance(whole, Node) or not whole.args or not isinstance(source := whole.args[0], Node):
        return False
    packet = getattr(whole.target, "overloadpacket", None)
    if packet not in (_PLACES_TOO if is_item else _PLACES):
        return False
    named = named_arguments(whole.target._schema, whole.args, whole.kwargs)  # type: ignore[union-attr]
    schema = {a.name: a.default_value for a in whole.target._schema.arguments}  # type: ignore[union-attr]
    dim, value = named.get("dim", schema.get("dim")), value_of(source)
    if not isinstance(value, torch.Tensor) or not isinstance(dim, int | None):
        return False
    sizes = value.shape if dim is None or not value.dim() else value.shape[dim : dim + 1 or None]
    return all(isinstance(n, int) and n == 1 for n in sizes)


def has_no_elements(node: Node) -> bool:
    """A tensor of which nothing has to be known but its shape."""
    value = value_of(node)
    return isinstance(value, torch.Tensor) and any(isinstance(n, int) and n == 0 for n in value.shape)


def effect_of(node: Node) -> Any:
    """The operator with side effects that this node calls; None: it has none."""
    if node.op != "call_function":
        return None
    is_ordered = getattr(node.target, "_name", "") == "with_effects"
    called: Any = node.args[1] if is_ordered else node.target
    return called if is_ordered or _has_effects(called) else None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What has to be known of a node each time that it is evaluated; worked out once."""

    is_plain: bool  # what its operator returns is its value, unless something writes in place
    is_index_of_one: bool
    effect: Any  # the operator with side effects that it calls, or None
    is_copy: bool
    shapes: Sequence[Node]  # arguments of which it uses the shape alone
    names_dtypes: bool  # in its arguments
    may_have_subgraphs: bool  # among its arguments

    @classmethod
    def of(cls, node: Node) -> NodeFacts:
        leaves = tree_flatten((node.args, node.kwargs))[0]
        subgraphs = any(isinstance(part, GraphModule) for part in leaves)
        return cls(
            _is_plain(node),
            is_index_of_one(node),
            effect_of(node),
            is_copy(node),
            only_shapes(node),
            any(isinstance(part, torch.dtype) for part in leaves),
            subgraphs or any(given.op == "get_attr" for given in node.all_input_nodes),
        )


def _is_plain(node: Node) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    is_special = is_uninitialised(node) or is_copy(node) or is_random(node) or target in BY_MEMORY
    looks_at_layout = target is aten.view.default or "attention" in target._schema.name
    return not (is_special or looks_at_layout or target._schema.is_mutable or is_custom(target))


def can_be_left_out(operator: Any) -> bool:
    """What it prints was printed before; what a check did not refuse, it would not refuse now."""
    return getattr(operator, "_name", "") in ("print", "aten::_print", *_HARMLESS)


def why_not_again(operator: Any) -> str:
    return f"{operator} has side effects, which would happen again"


def _has_effects(operator: Any) -> bool:
    """Whether it is registered as having some."""
    if isinstance(operator, torch._ops.OpOverloadPacket):
        names: list[str] = operator.overloads()  # type: ignore[no-untyped-call]
        return any(_has_effects(getattr(operator, name)) for name in names)
    if not isinstance(operator, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        return False
    if getattr(operator, "_name", "") in _HARMLESS:
        return False
    module = sys.modules.get("torch._higher_order_ops.effects")
    find, table = getattr(module, "_get_effect", None), getattr(module, "SIDE_EFFECTS", {})
    try:
        return find(operator) is not None if find is not None else operator in table
    except (TypeError, ValueError, AttributeError):  # not of a kind that can be registered
        return False
