"""The shell and Python blocks of the documentation, and what a reader would have before running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")), "../README.md"]

# Not run by a test: they install, or belong to the repository itself.
SHOWN = re.compile(r"pip install|git clone|make ")
# What starts a program, and so takes seconds, or reads the ranks of one: run for real in `make test-all`,
# read by its parser always.
STARTS = re.compile(
    r"kernelscope (why|run|shadow|determinism|bisect|reduce|invariance|compare|precision|ranks)\b|"
    r"^(python|sed) |^[A-Z_]+=|--save\b|--ranks\b|--calibrate\b|--precision\b|diff one sharded\b"
)
# What these say on a machine without a GPU.
REFUSED = {"kernelscope stages --kernel 'triton_*'": "no kernel matches 'triton_*'"}
# Executed by tests/integration/docs/test_guide.py, which knows what each block must do, and by .../ranks.
ELSEWHERE = {"guide.md": ("python",), "ranks.md": ("python",)}
# Executed by tests/integration/integrations/test_pages.py, where these packages are installed.
INTEGRATIONS = {
    "trainers.md": ("transformers", "accelerate", "lightning"),
    "pytest.md": (),
    "trackers.md": ("mlflow", "wandb", "tensorboard"),
}
# Each kernel of the first goes through g++; shadow.md runs what the second does; the third compiles much.
SLOW = ("gcu.md", "questions/differs-from-eager.md", "invariance.md")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Of a shell block: its lines without comments."""
        return [" ".join(_without_comment(line).split()) for line in self.text.splitlines() if line.strip()]


def _without_comment(line: str) -> str:
    words = shlex.shlex(line, posix=False, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    found = []
    for word in words:
        if word.startswith("#"):
            break
        found.append(word)
    return " ".join(found)


def blocks_of(page: str) -> Iterator[Block]:
    """Those with a language: what has none is a picture or the output of something."""
    for block in all_blocks(page):
        if block.language in ("python", "sh") and block.language not in _elsewhere(page):
            yield block


def _elsewhere(page: str) -> tuple[str, ...]:
    return ("python",) if page in INTEGRATIONS else ELSEWHERE.get(page, ())


def all_blocks(page: str) -> Iterator[Block]:
    text = (DOCS / page).read_text()
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])


def train_py() -> str:
    """The program that the pages are about."""
    return next(b.text for b in blocks_of("getting-started.md") if b.language == "python")


# Names that a page's blocks use and do not make. `module` is the model of train.py, not compiled.
PRELUDE = """
import torch, torch.nn.functional as F, kernelscope
module = torch.nn.Sequential(
    torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8), torch.nn.LayerNorm(8)
)
model, compiled, x = module, torch.compile(module), torch.randn(4, 16)
"""
TWO_RUNS = """
step, batch = compiled, x
with torch.no_grad(), kernelscope.record(values="hash") as first: step(batch)
with torch.no_grad(), kernelscope.record(values="hash") as second: step(batch)
"""
SAVED_RUNS = """
eager, other = "eager.kscope", "other.kscope"
for path, function in ((eager, module), (other, compiled)):
    with torch.no_grad(), kernelscope.record(path=path, values="save", ops="all"): function(x)
"""
PRELUDES = {
    "invariance.md": "batch = x",
    "compare.md": "other_model = model",
    "debug_mode.md": "compiled_model = compiled",
    "diff.md": TWO_RUNS + SAVED_RUNS,
    "questions/two-runs-differ.md": TWO_RUNS,
    "../README.md": TWO_RUNS,
    "stages.md": "model = compiled",
    "values.md": """
model = compiled
torch.save(torch.ones(2), "before_launch_extern_kernels.addmm_buf1_cpu.pt")
""",
    "gcu.md": """
import pathlib
y = torch.ones(4, 16)
program = '''__co__ auto kernel_87879174(f32 [4, 16] x, f32 [4, 16] y) {
  f32 [4, 16] out;
  foreach i in [4] {
    foreach j in [16] {
      out.at(i, j) = x.at(i, j) + y.at(i, j);
    }
  }
  return out;
}
'''
pathlib.Path("debug_dir").mkdir()
pathlib.Path("debug_dir/kernel_87879174.co").write_text(program)
pathlib.Path("FILE.co").write_text(program)
""",
    "export.md": "with kernelscope.record() as run: compiled(x)",
    "repro.md": """
import torch._inductor.config as inductor_config
compiled = torch.compile(lambda x: x.sin().relu() + 1)
x.requires_grad_()
inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
""",
    "custom-backend.md": """
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from kernelscope.gcu.backend import Inner
from kernelscope.gcu.lowering.operator_texts import decompositions
inner = Inner(kernelscope.config.Conductor())
""",
}
AFTERWARDS = {
    "gcu.md": "from kernelscope.gcu.debug_tracer import disable_debug_tracing as off; off()",
    "repro.md": "inductor_config.cpp.inject_relu_bug_TESTING_ONLY = None",
}
