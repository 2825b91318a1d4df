"""A small compiled program that does what its arguments say."""

import importlib.util
import os
import sys

HAS_TORCH = importlib.util.find_spec("torch") is not None  # as libraries ask before they import it

import torch  # noqa: E402


@torch.compile
def f(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).relu().sum(0)


def in_another_process() -> None:
    f(torch.ones(8, 8))


def main(words: list[str]) -> None:
    for word in words:
        what, _, value = word.partition("=")
        if what == "call":
            for _ in range(int(value)):
                f(torch.ones(8, 8))
        elif what == "steps":
            weight = torch.nn.Parameter(torch.ones(8, 8))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            for _ in range(int(value)):
                f(torch.ones(8, 8))
                optimizer.step()
        elif what == "chdir":
            os.chdir(value)
        elif what == "fork":
            pid = os.fork()
            if pid == 0:
                torch.set_num_threads(1)
                f(torch.ones(8, 8))
                os._exit(0)
            os.waitpid(pid, 0)
        elif what == "spawn":
            import multiprocessing

            child = multiprocessing.get_context("spawn").Process(target=in_another_process)
            child.start()
            child.join()
        elif what == "workers":
            data = torch.utils.data.DataLoader(
                torch.arange(8), batch_size=2, num_workers=2, multiprocessing_context=value
            )
            assert len(list(data)) == 4
        elif what == "ranks":
            import torch.distributed as dist

            dist.init_process_group("gloo")
            f(torch.ones(8, 8))
            dist.barrier()
            dist.destroy_process_group()
        elif what == "exit":
            sys.exit(int(value))
        elif what == "raise":
            raise RuntimeError(value)
        elif what == "print":
            print(value, sys.argv[0], __name__, os.getcwd())


if __name__ == "__main__":
    main(sys.argv[1:])
