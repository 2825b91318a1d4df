"""A new list length at each step: compiled again until Dynamo gives up."""

import torch


@torch.compile
def step(x, history):
    return x * len(history) + 1


x, history = torch.ones(8), []
for number in range(12):
    history.append(f"step {number}")
    x = step(x, history)
print(x.sum())
