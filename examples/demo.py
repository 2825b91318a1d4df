"""What kernelscope shows, on any machine with a C++ compiler: `make demo`, or `python examples/demo.py`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch._inductor.config
from torch import nn

import kernelscope


class Block(nn.Module):
    """A small network with a norm, a product and an activation."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.up(self.norm(x)))
        return jitter(x + self.down(hidden)).relu()


@torch.library.custom_op("demo::jitter", mutates_args=())
def jitter(x: torch.Tensor) -> torch.Tensor:
    """The fault to be found: noise from a generator that nobody seeds."""
    return x + 1e-6 * torch.randn(x.shape, generator=_UNSEEDED)


@jitter.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


jitter.register_autograd(lambda ctx, grad: grad)
_UNSEEDED = torch.Generator()


def title(text: str) -> None:
    print(f"\n\033[1m── {text} \033[0m" + "─" * max(0, 90 - len(text)))


def main() -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(8, 64)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        compiled(x).sum().backward()

    title("1. Every kernel of a compiled training step, with roles (→ written) and hashes")
    print("compiling …", flush=True)
    step()
    with kernelscope.record(values="hash") as run:
        step()
    print(run)

    title("2. One call in full: names from the kernel's signature, the user's line, the kernel's source")
    call = run.select(kind="cpp")[0]
    print(call.render())
    print(f"launched for {call.origin}, in a {call.phase} graph")
    print("source: " + call.source.strip().splitlines()[1].strip() + " …")

    title("3. The same step again and again: which kernel is not deterministic? kernelscope determinism")
    print(kernelscope.check_determinism(step, runs=3))

    title("4. A compiler that gets relu wrong: which kernel differs from eager? kernelscope shadow")
    with torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        print(kernelscope.check_correctness(nn.Sequential(nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 8)), x))

    title("5. A script that knows nothing of this, and dies in a kernel: kernelscope run examples/crash.py")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).with_name("crash.py")
        command = [sys.executable, "-m", "kernelscope", "run", "-o", f"{folder}/crash", str(script)]
        print(f"exit status {subprocess.run(command, check=False).returncode}")

    title("6. The training step as a page: your lines, graphs, kernels, values and times. kernelscope report")
    page = Path("kscope-runs/demo.html")
    page.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        torch._dynamo.reset()  # what the compiler did is told when it does it, or finds it in its cache
        with kernelscope.record(path=f"{folder}/demo", values="save", stages=True, time=True):
            step()
            optimizer.step()
        report = [sys.executable, "-m", "kernelscope", "report", f"{folder}/demo.kscope", "-o", str(page)]
        subprocess.run(report, check=True)
    print(f"open {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
