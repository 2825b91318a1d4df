"""What DTensors said: the meshes, and the layouts of arguments and results of the calls of one rank."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import DTENSOR_ENDS, DTENSOR_OPERATOR, MESH, Mark
from kernelscope.model.call import KernelCall

from .values.layouts import Layout, Mesh


@dataclass(frozen=True, slots=True)
class Declared:
    """A DTensor: how its rank's part is one of a whole."""

    mesh: Mesh
    layout: Layout
    shape: tuple[int, ...]  # of the whole
    storage: int  # of this rank's part


@dataclass(slots=True)
class DTensorOperator:
    """One operator on DTensors: its local calls are those from `first` up to `end`."""

    name: str
    first: int
    end: int
    arguments: list[Declared]
    results: list[Declared] = field(default_factory=list)


class DTensors:
    """All that one rank says about its DTensors."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self.meshes: dict[str, Mesh] = {}
        self.operators: list[DTensorOperator] = []
        self.unreadable = 0
        begun: list[DTensorOperator] = []
        for mark in marks:
            if mark.kind not in (MESH, DTENSOR_OPERATOR, DTENSOR_ENDS):
                continue
            try:
                told = json.loads(mark.text)
                if mark.kind == MESH:
                    self.meshes[str(told["name"])] = _mesh(told)
                elif mark.kind == DTENSOR_OPERATOR:
                    found = [self._declared(each) for each in told["arguments"] if each is not None]
                    begun.append(DTensorOperator(str(told["operator"]), mark.index, mark.index, found))
                elif begun:
                    operator = begun.pop()
                    operator.end = mark.index
                    operator.results = [self._declared(each) for each in told["results"] if each is not None]
                    self.operators.append(operator)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                self.unreadable += 1
        self._inside: dict[
            int, DTensorOperator
        ] = {}  # by call: the innermost ended last is not the outermost
        for operator in sorted(self.operators, key=lambda each: each.first - each.end):
            for index in range(operator.first, operator.end):
                self._inside[index] = operator

    def __bool__(self) -> bool:
        return bool(self.operators)

    def operator_of(self, call: KernelCall) -> DTensorOperator | None:
        return self._inside.get(call.index)

    def is_redistribution(self, call: KernelCall) -> bool:
        """Whether it moves values between layouts for an operator, which has another name."""
        operator = self.operator_of(call)
        return operator is not None and operator.name != call.kernel_name

    def of_argument(self, call: KernelCall, position: int, *, is_result: bool) -> Declared | None:
        """How an argument or result of a call that an operator on DTensors runs locally is laid out."""
        operator = self.operator_of(call)
        place = call.storages.get(position)
        if operator is None or place is None or operator.name != call.kernel_name:
            return None
        tensor = call.arguments[position].tensor
        for declared in operator.results if is_result else operator.arguments:
            if declared.storage == place[0] and tensor and len(tensor.shape) == len(declared.shape):
                return declared
        return None

    def _declared(self, told: dict[str, Any]) -> Declared:
        mesh = self.meshes[str(told["mesh"])]
        placements = tuple(str(each) for each in told["placements"])
        if len(placements) != len(mesh.shape):
            raise ValueError("a DTensor does not have one placement for each dimension of its mesh")
        shape = tuple(int(size) for size in told["shape"])
        return Declared(mesh, Layout(placements), shape, int(told["storage"]))


def _mesh(told: dict[str, Any]) -> Mesh:
    shape, ranks = tuple(int(n) for n in told["shape"]), tuple(int(n) for n in told["ranks"])
    count = 1
    for size in shape:
        count *= size
    if count != len(ranks) or not ranks:
        raise ValueError("the number of ranks in a mesh does not match its shape")
    return Mesh(shape, ranks, tuple(str(name) for name in told.get("dimensions") or ()))
