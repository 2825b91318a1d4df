"""Constants of TorchScript: torch hands them to a dispatch mode as numbers, and refuses these afterwards."""

from __future__ import annotations

from typing import Any

import torch

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_LISTS = ("List[Tensor]", "List[Optional[Tensor]]")
# By operator: the positions of arguments that must be tensors, or lists of them.
_TENSORS: dict[Any, tuple[int, ...]] = {}


def with_tensors(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with a tensor for each number that this operator refuses."""
    places = _TENSORS.get(func)
    if places is None:
        places = _TENSORS[func] = _places_of_tensors(func)
    for place in places:
        if place < len(args) and _holds_a_number(args[place]):
            return tuple(_tensor(a) if i in places else a for i, a in enumerate(args))
    return args


def _places_of_tensors(func: Any) -> tuple[int, ...]:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return ()
    takes_numbers = torch._C._should_allow_numbers_as_tensors(schema.name.partition("::")[2])
    refused = _LISTS if takes_numbers else ("Tensor", "Optional[Tensor]", *_LISTS)
    return tuple(i for i, argument in enumerate(schema.arguments) if str(argument.type) in refused)


def _holds_a_number(value: Any) -> bool:
    return type(value) in _DTYPES or (type(value) is list and any(type(each) in _DTYPES for each in value))


def _tensor(value: Any) -> Any:
    if type(value) is list:
        return [_tensor(each) for each in value]
    dtype = _DTYPES.get(type(value))
    return value if dtype is None else torch.tensor(value, dtype=dtype)
