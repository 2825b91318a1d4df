"""Where clean programs are registered, and how one is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Program = Callable[[], None]
PROGRAMS: dict[str, Program] = {}


def program(make: Program) -> Program:
    PROGRAMS[make.__name__] = make
    return make


def run(fn: Callable[..., Any], *args: Any, backward: bool = True, times: int = 1, **options: Any) -> Any:
    compiled = torch.compile(fn, **options)
    for _ in range(times):
        result = compiled(*args)
        made = result if isinstance(result, tuple | list) else [result]
        wanted = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
        if backward and wanted:
            sum(t.float().pow(2).sum() if not t.is_complex() else t.abs().sum() for t in wanted).backward()
    return result


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


NOT_CHECKED = {  # what of a program may be left unjudged
    "transforms_within_transforms": {"stage pre-grad"},
    "lists_updated_in_place": {"stage pre-grad"},
}
