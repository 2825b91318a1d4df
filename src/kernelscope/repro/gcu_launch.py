"""How a script launches a gcu kernel: translated from Choreo to C++ here, and built by the script."""

from __future__ import annotations

from kernelscope.model.call import KernelCall

from .script_parts import raw, unreproducible
from .sizes import learn, value_of

_BUILD = '''
def built(cpp, header):
    """A library made of the kernel; needs a C++ compiler, as torch.compile does."""
    import ctypes, os, subprocess, tempfile

    folder = tempfile.mkdtemp(prefix="repro-")
    for name, text in (("kernel.cpp", cpp), ("choreo.h", header)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    library = os.path.join(folder, "kernel.so")
    command = [os.environ.get("CXX", "g++"), *FLAGS, f"-I{folder}", "-shared", f"{folder}/kernel.cpp"]
    linked = [f"-L{os.path.dirname(torch.__file__)}/lib", "-ltorch_cpu"]  # for functions of SLEEF and MKL
    subprocess.run([*command, "-o", library, *linked], check=True)
    return ctypes.CDLL(library)
'''


def gcu_launch(call: KernelCall, names: dict[int, str]) -> tuple[list[str], list[str]]:
    """Code that builds the kernel, and code that launches it."""
    from kernelscope.gcu.choreo.cpp.to_cpp import translate
    from kernelscope.gcu.choreo.syntax.errors import ChoreoError
    from kernelscope.gcu.toolchain import FLAGS, header_text
    from kernelscope.gcu.torch_mathematics import compile_flags, has_blocks

    try:
        translation = translate(call.source, f"{call.kernel_name}.co", in_blocks=has_blocks())
        code = translation.function(call.kernel_name)
    except (ChoreoError, StopIteration) as error:
        raise unreproducible(call, f"its source cannot be translated: {error}") from None
    tensors = [(i, arg.tensor) for i, arg in enumerate(call.arguments) if arg.tensor is not None]
    shaped = [argument for argument in code.arguments if argument.dims is not None]
    if len(tensors) != len(shaped):
        raise unreproducible(call, "its arguments differ from those of its source")
    known: dict[str, int] = {}
    for argument, (_, spec) in zip(shaped, tensors, strict=True):
        dims = [f"{argument.name}_dim{n}" if d == "?" else d for n, d in enumerate(argument.dims or ())]
        learn(known, dims, spec.shape)
    parts, left = [], iter(tensors)
    for argument in code.arguments:
        if argument.dims is not None:
            parts.append(f"ctypes.c_void_p({names[next(left)[0]]}.data_ptr())")
        else:
            parts.append(_number(call, argument.name, known))
    parts += [_number(call, symbol, known) for symbol in code.symbols]
    before = [
        "import ctypes",
        f"FLAGS = {[*FLAGS, *compile_flags()]!r}",
        f"# Choreo:\n{_commented(call.source)}",
        f"CPP = {raw(translation.cpp)}",
        f"HEADER = {raw(header_text())}",
        _BUILD.strip(),
    ]
    lines = [
        f"status = LIBRARY.choreo_{call.kernel_name}({', '.join(parts)})",
        "if status:",
        '    raise RuntimeError("the kernel reported a failure")',
        "returned = None",
    ]
    return before, lines


def _number(call: KernelCall, name: str, known: dict[str, int]) -> str:
    found = value_of(name, known)
    if found is None:
        raise unreproducible(call, f"no shape gives the size {name}")
    return f"ctypes.c_int64({found})"


def _commented(source: str) -> str:
    return "\n".join(f"#   {line}" for line in source.strip().splitlines())
