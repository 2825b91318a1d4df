"""Evaluates FX nodes on real inputs: as eager would, in float64, and in float64 with small errors added.

In float64 the casts to a narrower float are ignored, because a kernel keeps more digits inside; casts to
integers, booleans and 8-bit floats stay. An operator without a float64 kernel runs in the dtype that it
was recorded with, and is noted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map

from kernelscope.probes.compilation.lowering import replaced_nodes
from kernelscope.shadowing.draws.inductor_draws import drawn
from kernelscope.shadowing.generator_state import seeded

from .compiled_forms import compiled_form
from .custom_operators import is_custom
from .flex_attention import flex, is_flex
from .graph_walk import concrete_sizes
from .in_place import InPlace
from .layouts import as_compiled, laid_out, viewed, with_aligned_bias
from .node_kinds import (
    NodeFacts,
    can_be_left_out,
    dtype_of,
    has_no_elements,
    is_copy,
    is_packed_linear,
    is_random,
    is_uninitialised,
    is_user_kernel,
    value_of,
    why_not_again,
)
from .small_errors.rounding import WIDE, shaken_result, shaken_terms, widen, widened
from .subgraphs import has_subgraphs, nodes_of_pattern, wide_dtype, with_batched_graphs, with_wide_subgraphs
from .written_arguments import (
    called_apart,
    cloned,
    copy_over,
    filled,
    paired,
    unwritten,
    write_back,
    write_back_kernel,
    written_by,
)

Run = Callable[[Node, Any, Any], Any]  # evaluates a node on its arguments

_BITS = {torch.ops.aten.view.dtype}


class CannotEvaluate(Exception):
    """Why a node has no reference, in a few words."""

    node: Any = None


class Reference:
    """Evaluates nodes of one graph."""

    def __init__(
        self,
        module: Any,
        symbols: Mapping[str, Any],
        in_place: InPlace,
        *,
        triton: bool,
        offload: bool = False,
        line: int = 0,
        seeds: Mapping[Node, int] | None = None,
        facts: dict[Node, NodeFacts] | None = None,
    ) -> None:
        """`line` of the wrapper: what earlier lines have written in place is not written again.

        `facts` of the nodes, kept for the next evaluation of the graph.
        """
        self._module = module
        self._offload = offload  # on the CPU, wherever the graph runs
        self._symbols = symbols  # the wrapper's sizes: s77
        self._seeds = seeds or {}  # of nodes that draw from torch's generators
        self._triton = triton
        self._facts = {} if facts is None else facts
        self._in_place = in_place
        self._writers = {node for by in in_place.writers.values() for node in by}
        self._finished = in_place.finished_before(line) if line else set()
        self._fill = 0  # of uninitialised memory: which of two
        self.narrow: set[str] = set()  # operators that ran without float64

    def same(self, order: Sequence[Node], inputs: Mapping[Node, Any]) -> dict[Node, Any]:
        """Each node in its own dtype, as eager computes it."""
        return self._run(order, inputs, self._plain, lambda node, value: value)

    def undefined(
        self, order: Sequence[Node], inputs: Mapping[Node, Any], eager: Mapping[Node, Any], node: Node
    ) -> torch.Tensor | None:
        """Which elements of a node's value depend on what uninitialised memory happens to hold."""
        if not any(is_uninitialised(each) for each in order):
            return None
        self._fill = 1
        try:
            one, other = eager[node], self.same(order, inputs)[node]
        finally:
            self._fill = 0
        both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        return (one != other) & ~((one != one) & (other != other)) if both else None

    def unwritten(
        self, order: Sequence[Node], inputs: Mapping[Node, Any], value: Any, node: Node
    ) -> torch.Tensor | None:
        """Which elements of a node's value its operators never wrote."""
        return unwritten(value, lambda: self.same(order, inputs)[node])

    def double(self, order: Sequence[Node], inputs: Mapping[Node, Any]) -> dict[Node, Any]:
        return self._run(order, widened(inputs), self._wide, lambda node, value: value)

    def jittered(
        self, order: Sequence[Node], inputs: Mapping[Node, Any], generator: torch.Generator
    ) -> dict[Node, Any]:
        """float64 with an error of one rounding after each node."""

        def shake(node: Node, value: Any) -> Any:
            return shaken_result(node, value, generator)

        def run(node: Node, args: Any, kwargs: Any) -> Any:
            if node not in self._writers:
                args = shaken_terms(node, args, generator)
            return self._wide(node, args, kwargs)

        return self._run(order, widened(inputs), run, shake)

    def _run(
        self,
        order: Sequence[Node],
        inputs: Mapping[Node, Any],
        run: Run,
        then: Callable[[Node, Any], Any],
    ) -> dict[Node, Any]:
        values = dict(inputs)
        if not self._writers.isdisjoint(order):  # they write to copies
            values |= {n: cloned(v) for n, v in values.items() if n in self._in_place.writers}
        for node in order:
            try:
                if node in self._finished:
                    values[node] = values[self._in_place.results[node]]
                    continue
                facts = self._facts_of(node)
                if facts.is_index_of_one:
                    values[node] = self._without_elements(node).zero_()
                    continue
                args, kwargs = self._arguments(node, values)
                if facts.effect is not None:
                    values[node] = _without_effect(facts.effect, args)
                    continue
                values[node] = then(node, run(node, args, kwargs))
            except CannotEvaluate as error:
                error.node = node
                raise
            except Exception as error:
                first = str(error).partition("\n")[0][:200]
                new = CannotEvaluate(f"{node.target} cannot be evaluated: {first}")
                new.node = node
                raise new from error
        return values

    def _facts_of(self, node: Node) -> NodeFacts:
        found = self._facts.get(node)
        if found is None:
            found = self._facts[node] = NodeFacts.of(node)
        return found

    def constant(self, node: Node) -> Any:
        """A tensor that the graph itself has."""
        found = operator.attrgetter(str(node.target))(self._module)
        return found.cpu() if self._offload and isinstance(found, torch.Tensor) else found

    def _arguments(self, node: Node, values: dict[Node, Any]) -> tuple[Any, Any]:
        def fetch(part: Any) -> Any:
            if part in values:
                return values[part]
            if part.op == "get_attr":
                return self.constant(part)
            if has_no_elements(part):
                values[part] = self._without_elements(part)
                return values[part]
            return self._of_shape(part) if part in facts.shapes else self._symbol(part)

        facts = self._facts_of(node)
        if facts.is_copy and node not in self._writers:  # what it is copied over need not be known
            args, kwargs = (None, *map_arg(node.args[1:], fetch)), dict(node.kwargs)
        else:
            args, kwargs = map_arg((node.args, node.kwargs), fetch)
        if self._offload:
            on_cpu = torch.device("cpu")
            args, kwargs = tree_map(lambda p: on_cpu if isinstance(p, torch.device) else p, (args, kwargs))
        return args, kwargs

    def _without_elements(self, node: Node) -> torch.Tensor:
        fake = value_of(node)
        device = torch.device("cpu") if self._offload else fake.device
        return torch.empty(concrete_sizes(fake.shape, self._symbols), dtype=fake.dtype, device=device)

    def _of_shape(self, node: Node) -> torch.Tensor:
        """In place of an argument whose values are not used: NaN, so that a use would show."""
        fake = value_of(node)
        if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
            return torch.empty(0)
        shape, strides = (concrete_sizes(sizes, self._symbols) for sizes in (fake.shape, fake.stride()))
        device = torch.device("cpu") if self._offload else fake.device
        return filled(torch.empty_strided(shape, strides, dtype=fake.dtype, device=device), 0)

    def _symbol(self, node: Node) -> Any:
        value = value_of(node)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            expression = value.node.expr
            unknown = [str(s) for s in expression.free_symbols if s.name not in self._symbols]
            if unknown:
                raise CannotEvaluate(f"the size {expression} is unknown")
            found = expression.xreplace({s: self._symbols[s.name] for s in expression.free_symbols})
            kind = {torch.SymInt: int, torch.SymBool: bool}.get(type(value), float)
            return kind(found)
        if isinstance(value, int | float | bool):
            return value
        raise CannotEvaluate(f"{node.name} is not among the kernel's inputs")

    # -- one node --------------------------------------------------------------------------------------

    def _plain(self, node: Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if (found := compiled_form(target, args, kwargs, triton=self._triton)) is not None:
            return found
        if self._facts_of(node).is_plain and node not in self._writers and node not in self._seeds:
            return target(*args, **kwargs)
        if node.op != "call_function":
            raise CannotEvaluate(f"it needs a node of kind {node.op}")
        if not isinstance(target, torch._ops.OpOverload):  # a higher-order operator has a namespace too
            return self._other(node, target, args, kwargs)
        if is_uninitialised(node):
            return filled(target(*args, **kwargs), self._fill)
        if node in self._writers:
            done = copy_over(*args) if is_copy(node) else target(*args, **kwargs)
            return done if done is not None else written_by(target, args, kwargs)
        if is_copy(node):
            return self._copied(node, args[1])
        if is_random(node):
            return self._random(target, args, kwargs)
        args, kwargs = with_aligned_bias(target, args, kwargs)
        if node in self._seeds:
            with seeded(self._seeds[node]):
                return target(*args, **kwargs)
        if target._schema.is_mutable or is_custom(target):
            return called_apart(target, args, kwargs)
        # A write to a view must reach its base.
        if self._in_place.memory_of(node) in self._in_place.writers:
            return target(*args, **kwargs)
        return viewed(target, as_compiled(node, args, self._symbols), kwargs)

    def _other(self, node: Node, target: Any, args: Any, kwargs: Any) -> Any:
        if (replaced := replaced_nodes(node)) is not None:
            return self._replaced(replaced, args, kwargs, self._plain)
        if not isinstance(target, torch._ops.HigherOrderOperator):
            return target(*args, **kwargs)
        args, kwargs = with_batched_graphs((args, kwargs))
        copies_itself = getattr(target, "_name", "").startswith("triton_kernel_wrapper_functional")
        if not is_flex(node) and not copies_itself and node not in self._writers:
            args, kwargs = tree_map(cloned, (args, kwargs))
        with torch.utils._python_dispatch._disable_current_modes():
            result = flex(node, args) if is_flex(node) else target(*args, **kwargs)
        return kwargs["kwargs"] if is_user_kernel(node) else result

    def _replaced(self, replaced: tuple[Graph, list[int]], args: Any, kwargs: Any, run: Run) -> Any:
        order, inputs, result = nodes_of_pattern(replaced, args, kwargs)
        return self._run(order, inputs, run, lambda node, value: value)[result]

    def _wide(self, node: Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if is_copy(node) and node not in self._writers:
            return self._copied(node, args[1], wide=True)
        if target is operator.getitem:
            return args[0][args[1]]
        if is_random(node):
            return widen(self._random(target, args, kwargs))
        if (replaced := replaced_nodes(node)) is not None:
            return self._replaced(replaced, args, kwargs, self._wide)
        is_foreign = getattr(target, "namespace", "") not in ("aten", "prims") and not is_packed_linear(
            target
        )
        facts = self._facts_of(node)
        if facts.may_have_subgraphs and has_subgraphs((args, kwargs)):
            args, kwargs = with_wide_subgraphs((args, kwargs))
        elif target in _BITS or is_foreign or node in self._seeds:  # in float64 it would draw other numbers
            return self._narrowly(node, args, kwargs)
        wide = tree_map(wide_dtype, (args, kwargs)) if facts.names_dtypes else (args, kwargs)
        try:
            return widen(self._plain(node, *wide))
        except (RuntimeError, NotImplementedError, TypeError):
            return self._narrowly(node, args, kwargs)

    def _narrowly(self, node: Node, args: Any, kwargs: Any) -> Any:
        """In the dtypes that were recorded: there is no float64 kernel, or the bits matter."""
        self.narrow.add(str(node.target))

        def narrow(value: Any, part: Any) -> Any:
            if isinstance(value, torch.Tensor) and isinstance(part, Node) and (dtype := dtype_of(part)):
                return value.to(dtype)
            return value

        given = args, kwargs
        args, kwargs = paired(narrow, args, node.args), paired(narrow, kwargs, node.kwargs)
        result = widen(self._plain(node, args, kwargs))
        if is_user_kernel(node) and node in self._writers:
            write_back_kernel(given[1], kwargs)
        elif node in self._writers:
            write_back(node.target, given, (args, kwargs))
        return result

    def _copied(self, node: Node, source: Any, *, wide: bool = False) -> Any:
        """`copy_(destination, source)`: of the destination only shape and dtype matter."""
        value = value_of(node)
        dtype = WIDE.get(value.dtype, value.dtype) if wide else value.dtype
        try:
            shape, strides = (concrete_sizes(n, self._symbols) for n in (value.shape, value.stride()))
        except KeyError as error:
            raise CannotEvaluate(f"the size {error} is unknown") from error
        return laid_out(source.to(dtype).expand(shape), strides, is_written=node in self._in_place.writers)

    def _random(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = drawn(target, args, kwargs.get("offset", 0), triton=self._triton)
        if found is None:
            raise CannotEvaluate(f"{target} draws random numbers of its own")
        return found


def _without_effect(effect: Any, args: Any) -> Any:
    """The order of effects goes on."""
    if not can_be_left_out(effect):
        raise CannotEvaluate(why_not_again(effect))
    return (args[0], None)
