"""The sizes do not fit: a mistake of the program, whatever compiles it."""

import torch


@torch.compile
def layer(x, weight):
    return (x @ weight).relu()


print(layer(torch.ones(4, 8), torch.ones(4, 8)))
