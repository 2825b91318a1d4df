"""A g++ that builds each text once: in the tests here the same C++ is compiled in many empty caches."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_COMPILER = """#!{python} -IS
import hashlib, os, shutil, subprocess, sys

words, store = sys.argv[1:], {store!r}
sources = [word for word in words if word.endswith(".cpp")]
target = words[words.index("-o") + 1] if "-o" in words else ""
if len(sources) != 1 or not target.endswith(".so"):
    os.execv({real!r}, [{real!r}, *words])
flags = [word for word in words if word not in (sources[0], target)]
with open(sources[0], "rb") as file:
    key = hashlib.sha256(file.read() + "\\0".join(flags).encode()).hexdigest()
kept = os.path.join(store, key)
if not os.path.exists(kept):
    status = subprocess.call([{real!r}, *words])
    if status:
        sys.exit(status)
    shutil.copyfile(target, f"{{kept}}.{{os.getpid()}}")
    os.rename(f"{{kept}}.{{os.getpid()}}", kept)
else:
    shutil.copyfile(kept, target)
    os.chmod(target, 0o755)
"""


def compiler_that_builds_once(folder: Path) -> Path:
    """A folder to have first in PATH."""
    real = shutil.which("g++")
    assert real is not None
    store, path = folder / "built", folder / "bin" / "g++"
    store.mkdir()
    path.parent.mkdir()
    path.write_text(_COMPILER.format(python=sys.executable, store=str(store), real=real))
    path.chmod(0o755)
    return path.parent
