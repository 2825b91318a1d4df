"""Which torch the tests run on, for the few things that a release does differently."""

from __future__ import annotations

from importlib.metadata import version

RELEASE = tuple(int(part) for part in version("torch").split(".")[:2])
