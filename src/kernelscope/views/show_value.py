"""`kernelscope show --call N --value ARGUMENT`: one saved tensor, as a picture or a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.store.saved_values import value_of
from kernelscope.store.stored_run import StoredRun

from . import plain
from .picture import picture


def show_value(args: argparse.Namespace, run: StoredRun) -> int:
    if args.call is None or args.value is None:
        raise RunError("--value, --before and -o are about one tensor: give --call N --value ARGUMENT")
    found = run.select(first=args.call, limit=1)
    if not found or found[0].index != args.call:
        raise RunError(f"{run.path} has no call {args.call}; it has {len(run)} calls")
    saved = value_of(found[0], args.value, "before" if args.before else "")
    array = saved.numpy()
    told = {"call": args.call, "argument": args.value, "dtype": saved.dtype, "shape": list(saved.shape)}
    if args.output is not None:
        _write(Path(args.output), args.value, array)
    if args.json:
        plain.dump({**told, "file": args.output})
        return 0
    print(f"call {args.call}, {found[0].kernel_name}, {args.value}: {saved.dtype}{list(saved.shape)}")
    for line in picture(array):
        print(line)
    if args.output is not None:
        print(f"written to {args.output}")
    return 0


def _write(path: Path, name: str, array: Any) -> None:
    import numpy

    if path.suffix != ".npz":
        raise RunError(f"-o {path}: give a name that ends in .npz")
    try:
        with open(path, "xb") as file:
            numpy.savez(file, **{name: array})
    except FileExistsError:
        raise RunError(f"{path} is there already, and is not overwritten") from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None
