"""`kernelscope show --call N --value ARGUMENT`: one saved tensor, as a picture or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import open_private
from kernelscope.store.stored_run import StoredRun

from . import plain
from .picture import picture
from .show import call_at


def show_value(
    run: StoredRun, index: int, name: str, *, before: bool, output: Path | None, as_json: bool
) -> None:
    call = call_at(run, index)
    saved = run.saved_value(call, name, "before" if before else "")
    array, shape = saved.numpy(), list(saved.shape)
    if output is not None:
        _write(output, name, array)
    if as_json:
        file = None if output is None else str(output)
        plain.dump({"call": index, "argument": name, "dtype": saved.dtype, "shape": shape, "file": file})
        return
    print(f"call {index}, {call.kernel_name}, {name}: {saved.dtype}{shape}")
    for line in picture(array):
        print(line)
    if output is not None:
        print(f"written to {output}")


def _write(path: Path, name: str, array: Any) -> None:
    import numpy

    if path.suffix != ".npz":
        raise RunError(f"-o {path}: give a name that ends in .npz")
    try:
        with open_private(path, "xb") as file:
            numpy.savez(file, **{name: array})
    except FileExistsError:
        raise RunError(f"{path} already exists and is not overwritten; choose another name") from None
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
