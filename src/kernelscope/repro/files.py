"""Writing a script and its tensors."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.errors import RunError
from kernelscope.private_files import make_folder, write_bytes, write_text
from kernelscope.text.file_names import file_name

if TYPE_CHECKING:
    from kernelscope.store.tensors import SavedTensor

    from .script_parts import Script


def write(script: Script, folder: Path) -> Path:
    """Write both files, which must not exist; returns the script's path."""
    path = folder / f"{file_name(script.name)}.py"
    beside = path.with_suffix(".safetensors")
    for each in (path, beside):
        if each.exists() or each.is_symlink():
            raise RunError(f"{each} exists and is not overwritten; choose another folder with -o")
    try:
        make_folder(folder, exist_ok=True)
        if script.tensors:
            write_bytes(beside, safetensors_of(script.tensors))
        write_text(path, script.text, errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None
    return path


def safetensors_of(tensors: dict[str, SavedTensor]) -> bytes:
    """The format: a length, a header in JSON, the bytes. The header is padded to 8 bytes."""
    head: dict[str, object] = {}
    place = 0
    for name, held in tensors.items():
        head[name] = {
            "dtype": held.dtype,
            "shape": list(held.shape),
            "data_offsets": [place, place + len(held.data)],
        }
        place += len(held.data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(held.data for held in tensors.values())
