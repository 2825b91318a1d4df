"""Dies in many ways while it records: forks a child for each line on its input, and tells how that one ended.

A line is `HOW FOLDER`; the answer is a JSON object. The operator `steady` is the kernel to die in: it says
in shared memory when it begins and ends, so that what the flight recorder tells can be checked.
"""

import json
import mmap
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

import kernelscope
from kernelscope.config import Config
from kernelscope.recording import Recording

shared = mmap.mmap(-1, 4096)  # begun, ended
how, die_at = "", 0
begun = 0


def said() -> tuple[int, int]:
    return struct.unpack_from("<QQ", shared)


@torch.library.custom_op("crashing::steady", mutates_args=())
def steady(x: Tensor) -> Tensor:
    global begun
    begun += 1
    struct.pack_into("<Q", shared, 0, begun)
    if how and begun == die_at:
        if how == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif how == "exit":
            os._exit(7)
        elif how.startswith("saved"):
            os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + 0.001
    while how and time.monotonic() < deadline:
        pass
    result = x + 1
    struct.pack_into("<Q", shared, 8, begun)
    return result


@steady.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.compile
def step(x: Tensor) -> Tensor:
    return steady(x.sin()).cos() @ x


@torch.compile
def gather(x: Tensor, index: Tensor) -> Tensor:
    return x[index] * 2


@torch.compile
def small(x: Tensor) -> Tensor:
    return (x.sin() @ x).cos().softmax(-1) @ x


def full_speed(folder: str) -> None:
    """The smallest kernels, with hashes; the program counts its own graph calls."""
    x, count = torch.randn(8, 8), 0
    with kernelscope.record(path=folder, values="hash"):
        while True:
            small(x)
            count += 1
            struct.pack_into("<QQ", shared, 0, count, count)


def saves(folder: str, x: Tensor) -> None:
    """Saves tensors, and dies in an operator: once the step before is written, or in the first step."""
    global die_at
    die_at = 1 << 40
    with kernelscope.record() as known:
        step(x)
    fatal = [call.kernel_name for call in known.calls].index("crashing.steady.default")
    only = fatal if how == "saved-one" else None
    path = Path(folder + ".kscope")
    path.mkdir()
    recording = Recording(Config(values="save", save_call=only), path)
    recording.open()
    if only is None:
        step(x)
        while recording.sink.writer.calls < len(known):  # without being asked
            time.sleep(0.001)
    die_at = begun + 1
    step(x)


def child(folder: str) -> None:
    global begun
    begun = 0
    x = torch.ones(16, 16)
    if how == "hashes":
        full_speed(folder)
    if how.startswith("saved"):
        saves(folder, x)
    with kernelscope.record(path=folder):
        for _ in range(3):
            gather(x, torch.tensor([1, 2]))
        if how == "outside":  # a C++ kernel of Inductor's reads where nothing is
            for _ in range(die_at):
                step(x)
            gather(x, torch.tensor([1 << 40, 2]))
        while True:
            step(x)


def trial(kind: str, folder: str) -> dict[str, object]:
    global how, die_at
    how, die_at = kind, random.randint(2, 60)
    struct.pack_into("<QQ", shared, 0, 0, 0)
    pid = os.fork()
    if pid == 0:
        try:
            child(folder)
        finally:
            os._exit(99)
    if kind in ("kill", "late", "hashes"):
        while not said()[0]:  # it runs
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.3) if kind == "kill" else random.uniform(1.2, 1.7))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    begun_last, ended_last = said()
    return {
        "status": os.waitstatus_to_exitcode(status),
        "die_at": die_at,
        "begun": begun_last,
        "ended": ended_last,
    }


if __name__ == "__main__":
    random.seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    torch.set_num_threads(1)  # a forked child has no threads but its own
    torch._inductor.config.assert_indirect_indexing = False
    step(torch.ones(16, 16))
    gather(torch.ones(16, 16), torch.tensor([1, 2]))
    small(torch.ones(8, 8))
    print("ready", flush=True)
    for line in sys.stdin:
        kind, folder = line.rstrip("\n").split(" ", 1)
        print(json.dumps(trial(kind, folder)), flush=True)
