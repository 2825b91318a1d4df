"""The parts of a script: its own code first, the code that all scripts share last."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Any

from kernelscope import __version__
from kernelscope.errors import RunError

if TYPE_CHECKING:
    from kernelscope.model.call import KernelCall
    from kernelscope.store.stored_run import StoredRun
    from kernelscope.store.tensors import SavedTensor

_EMBEDDED = ("tensors.py", "rounding.py", "main.py")
_RANDOM = ("../../shadowing/reference/random_numbers.py", "random_numbers.py")
_PRIMS = re.compile(r"torch\.ops\.prims\.(?!convert_element_type\b|iota\b|device_put\b)")
_WIDTH = 110
_IRRELEVANT = ("fx_graph_", "worker_", "compile_threads", "trace.", "force_disable_caches")
_CONTAINERS = (list, dict, tuple, set)
_LITERALS = (bool, int, float, complex, str, bytes)
SHARED = "the same in every script: reading tensors, comparing, timing"


@dataclass(slots=True)
class Script:
    """A script and the tensors that go beside it."""

    name: str
    text: str
    tensors: dict[str, SavedTensor]
    notes: list[str] = field(default_factory=list)


def unreproducible(call: KernelCall, why: str) -> RunError:
    return RunError(f"call {call.index}, {call.kernel_name}: {why}")


def rule(title: str) -> str:
    return f"# -- {title} ".ljust(_WIDTH - 8, "-")


def docstring(what: str, versions: Mapping[str, str]) -> str:
    listed = ", ".join(f"{k} {v}" for k, v in sorted(versions.items()) if k in ("torch", "triton", "python"))
    # Names of files are anything, and versions are not signed: neither may end the docstring.
    what, listed = (text.replace("\\", "/").replace('"""', "'''") for text in (what, listed))
    return (
        f'"""{what}\n\n'
        f"Made with {listed}. Needs torch, and the .safetensors file beside it if there is one.\n"
        "Exit status: 0 the result is correct, 1 it is wrong, 2 inconclusive.\n"
        "    --benchmark    compare its time with eager and Inductor\n\n"
        f'Written by kernelscope {__version__}.\n"""'
    )


def literal(value: Any) -> str:
    """A recorded value as code; RunError for what has no literal, because its text could be any code."""
    _refuse_objects(value)
    return repr(value)


def _refuse_objects(value: Any) -> None:
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set):
        for each in value:
            _refuse_objects(each)
    elif value is not None and type(value) not in _LITERALS:
        raise RunError(f"a script cannot contain {str(value)[:80]}, which only the recorded program knew")


def tables(given: dict[str, Any], recorded: dict[str, Any], notes: Sequence[str]) -> list[str]:
    _refuse_objects([given, recorded])
    return [
        rule("the arguments"),
        f"GIVEN = {pformat(given, sort_dicts=False, width=_WIDTH)}",
        f"RECORDED = {pformat(recorded, sort_dicts=False, width=_WIDTH)}",
        f"NOTES = {pformat(list(notes), width=_WIDTH)}",
    ]


def registering(code: str) -> list[str]:
    """The import that registers operators of Inductor's own in this code, such as `prims.fma`."""
    line = "import torch._inductor.inductor_prims  # registers operators that are used here"
    return [line] if _PRIMS.search(code) else []


def draws_by_seed(code: str) -> bool:
    """Whether Inductor draws random numbers in this code, which eager has to draw, too."""
    return "prims.inductor_rand" in code


def ending(eager: str, first: Sequence[str] = (), *, draws: bool = False) -> list[str]:
    """The code that every script shares, and what a script does when it is run."""
    right = f"drawing({eager})" if draws else eager
    return [
        rule(SHARED),
        *_embedded([*_EMBEDDED, *(_RANDOM if draws else ())]),
        'if __name__ == "__main__":',
        '    if hasattr(sys.stdout, "reconfigure"):  # not in a notebook',
        '        sys.stdout.reconfigure(errors="backslashreplace")',
        *[f"    {line}" for line in first],
        '    if "--benchmark" in sys.argv:',
        f"        sys.exit(benchmark(__file__, launch, {eager}, GIVEN))",
        f"    sys.exit(check(__file__, launch, {right}, GIVEN, RECORDED, NOTES))",
    ]


def settings(found: Mapping[str, Any], notes: list[str]) -> list[str]:
    """Inductor's settings that differ from torch's defaults; without them the script may not fail."""
    lines = []
    for name, value in found.items():
        if name.startswith(_IRRELEVANT) or not all(word.isidentifier() for word in name.split(".")):
            continue
        value = _container(value)
        if value is None or isinstance(value, (bool, int, float, *_CONTAINERS)) or _is_word(value):
            lines.append(f"torch._inductor.config.{name} = {value!r}")
        else:
            notes.append(f"Inductor's setting {name} is left out: {str(value)[:80]}")
    return [rule("settings"), "import torch._inductor.config", *lines] if lines else []


_FLAGS = {  # by recorded name: the default, and how to set it
    "deterministic algorithms": (False, "torch.use_deterministic_algorithms({}, warn_only=True)"),
    "float32 matmul precision": ("highest", "torch.set_float32_matmul_precision({})"),
    "matmul bf16 reduction": (True, "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = {}"),
    "matmul f16 reduction": (True, "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = {}"),
    "cudnn TF32": (True, "torch.backends.cudnn.allow_tf32 = {}"),
    "cudnn deterministic": (False, "torch.backends.cudnn.deterministic = {}"),
    "cudnn benchmark": (False, "torch.backends.cudnn.benchmark = {}"),
}


def flags(run: StoredRun, call: KernelCall) -> list[str]:
    """Torch's global flags that change what a kernel computes, where the program had set them."""
    import numpy as np

    from kernelscope.analysis.alignment.calls_by_position import Reader

    found = Reader(run, np.empty(0, np.int64)).switches(call)
    lines = [
        how.format(repr(found[name]))
        for name, (usual, how) in _FLAGS.items()
        if isinstance(found.get(name), type(usual)) and found[name] != usual
    ]
    if found.get("matmul TF32") is True and found.get("float32 matmul precision") == "highest":
        lines.append("torch.backends.cuda.matmul.allow_tf32 = True")
    dtype = str(run.compiler_settings.get("torch", {}).get("default_dtype", ""))
    if re.fullmatch(r"torch\.\w+", dtype):
        lines.append(f"torch.set_default_dtype({dtype})")
    return [rule("flags of torch that the program had set"), "\n".join(lines)] if lines else []


def raw(text: str) -> str:
    """Text as a readable literal."""
    return f"r'''{text}'''" if "'''" not in text and not text.endswith(("\\", "'")) else repr(text)


def _container(value: Any) -> Any:
    """A list or the like, which a run has as its text; any other value is itself."""
    try:
        read = ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return read if isinstance(read, _CONTAINERS) else value


def _is_word(value: Any) -> bool:
    """Not the text of an object of the program's."""
    return isinstance(value, str) and "<" not in value


def laid_out(blocks: Sequence[str]) -> str:
    """Empty lines before what stands at the margin."""
    lines = [blocks[0], "", "from __future__ import annotations", "", "from math import inf, nan", ""]
    lines += ["import torch", "from torch import device"]
    for block in blocks[1:]:
        if not block.startswith("    "):
            lines.append("")
        lines.append(block)
    return "\n".join(lines) + "\n"


def _embedded(files: Sequence[str]) -> list[str]:
    """What they import, once, and what they define."""
    imports: dict[str, None] = {}
    bodies = []
    for file in files:
        lines = (Path(__file__).parent / "embedded" / file).read_text(encoding="utf-8").splitlines()
        first = lines.index("from __future__ import annotations") + 1
        last = max(i for i, line in enumerate(lines) if line.startswith(("import ", "from "))) + 1
        own = ("from .", "from kernelscope.")
        imports |= dict.fromkeys(line for line in lines[first:last] if line and not line.startswith(own))
        bodies.append("\n".join(lines[last:]).strip() + "\n")
    return ["\n".join(sorted(imports, key=lambda line: (line.startswith("from "), line))), *bodies]
