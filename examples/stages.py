"""What the compiler did to a small model: its kernels, where each comes from, and what was not fused.

python examples/stages.py
"""

import torch

import kernelscope


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = (
            torch.nn.Linear(16, 32),
            torch.nn.LayerNorm(32),
            torch.nn.Linear(32, 4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(x))
        return self.down(self.norm(hidden))


def main() -> None:
    torch.manual_seed(0)
    model, x = torch.compile(Model()), torch.randn(8, 16)
    with kernelscope.record(stages=True) as run:
        model(x).square().mean().backward()

    for graph in run.stages:
        print(f"{graph.name}: {graph.made}, {len(graph.stages)} stages")
        for launch in graph.provenance:
            lines = sorted({frame.line for node in launch.nodes for frame in node.frames[:1]})
            print(f"  {launch.kernel}: {', '.join(node.name for node in launch.nodes)}; lines {lines}")
        for refusal in graph.refusals:
            print(f"  {refusal.first} was not fused with {refusal.second}: {refusal.reason}")


if __name__ == "__main__":
    main()
