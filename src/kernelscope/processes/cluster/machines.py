"""Processes of Ray on the machines of a cluster, and how to ask them. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.errors import RunError


class WorkerLost(Exception):
    """The process that was asked has ended, or its machine cannot be reached."""


class Machine:
    """One process of Ray that holds an object of `kind`; what goes there and comes back is plain data."""

    def __init__(self, ray: Any, kind: type, *arguments: Any, threads: int = 1) -> None:
        self._ray = ray
        made = ray.remote(kind).options(
            num_cpus=1, num_gpus=int(gpus_of(ray) > 0), scheduling_strategy="SPREAD",
            max_concurrency=threads,
        )  # fmt: skip
        self._actor = made.remote(*arguments)

    def ask(self, method: str, *arguments: Any) -> Any:
        """What stands for the answer until it is there."""
        return getattr(self._actor, method).remote(*arguments)

    def answer(self, asked: Any, seconds: float | None = None) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(asked, timeout=seconds)
        except errors.GetTimeoutError:
            raise TimeoutError from None
        except errors.RayTaskError as error:
            cause = str(error.cause or error).strip().splitlines()
            raise RunError(
                f"a worker of Ray failed: {cause[-1] if cause else type(error).__name__}"
            ) from None
        except errors.RayError as error:
            raise WorkerLost(_first_line(error)) from None

    def end(self) -> None:
        self._ray.kill(self._actor)


def finished(ray: Any, asked: Sequence[Any], seconds: float) -> list[Any]:
    """Those that are answered, or never will be; waits for the first one."""
    done, _ = ray.wait(list(asked), num_returns=1, timeout=seconds)
    if done and len(asked) > 1:
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
    return list(done)


def workers_of(ray: Any, most: int) -> int:
    """How many trials the cluster runs at once: one on each GPU, or else on each CPU."""
    cpus = int(ray.cluster_resources().get("CPU", 1))
    return max(1, min(most, cpus, gpus_of(ray) or most))


def gpus_of(ray: Any) -> int:
    return int(ray.cluster_resources().get("GPU", 0))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
