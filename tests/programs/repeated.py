"""A compiled program that adds up in whatever order its threads come, if it is asked to."""

import sys

import torch


@torch.compile
def scattered(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    return torch.zeros(8).index_add(0, where, x * 2).relu()


@torch.compile
def plain(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).sum(0)


def main(words: list[str]) -> None:
    torch.set_num_threads(2)
    if "seeded" in words:
        torch.manual_seed(0)
    if "unseeded" in words:
        torch.seed()
    x = torch.randn(400_000)
    plain(x.reshape(1000, -1))
    if "racing" in words:
        where = torch.arange(len(x)) % 8
        print(scattered(x, where).sum().item())
    if "fail" in words:
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1:])
