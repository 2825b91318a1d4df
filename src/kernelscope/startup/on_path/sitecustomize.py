"""Python runs this at startup when `kernelscope run` has put its folder on PYTHONPATH."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_users_own() -> None:
    """Only one `sitecustomize` is found by Python: the one that we hide still runs."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _record() -> None:
    try:
        from kernelscope.startup.autorecord import start
    except ImportError:
        print(
            f"kernelscope: this process is not recorded, because {sys.executable} has no kernelscope",
            file=sys.stderr,
        )
        return
    start()


_record()
_run_the_users_own()
