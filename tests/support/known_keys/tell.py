"""Runs when Python starts, with keys that find.py filled in: imports nothing that a program would notice."""

import sys

KEYS: dict[str, tuple[str, str]] = {}


def tell(module, key):
    if module.__name__ == "triton.runtime.cache":
        import functools

        module.triton_key = functools.lru_cache(lambda: key)  # has the methods that it had
    elif hasattr(module.torch_key, "set"):
        module.torch_key.set(bytes.fromhex(key))


class Telling:
    """A loader that loads as the usual one does, and then tells the key."""

    def __init__(self, usual, key):
        self.usual, self.key = usual, key

    def __getattr__(self, name):
        return getattr(self.usual, name)

    def create_module(self, spec):
        return self.usual.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.usual
        self.usual.exec_module(module)
        tell(module, self.key)


class Finder:
    """Stands before the finder of files, and asks it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in KEYS:
            return None
        from importlib.machinery import PathFinder

        file, key = KEYS[name]
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin == file:
            spec.loader = Telling(spec.loader, key)
        return spec


sys.meta_path.insert(0, Finder)
