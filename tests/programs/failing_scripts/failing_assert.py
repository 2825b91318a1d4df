"""A size taken for data: Dynamo makes another tensor than the function does (stock torch 2.13)."""

import torch


@torch.compile
def shape_of(x):
    return torch.Tensor(x.size()).shape, x + 1


shape, _ = shape_of(torch.ones(3, 4))
assert tuple(shape) == (3, 4), tuple(shape)
