"""Which kernels are looked at, by our name for them or by that of AOTInductor's C shim. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from kernelscope.events import Kernel, Site

_SHIM = re.compile(r"aoti_torch_(?:cpu_|cuda_|xpu_|mps_|aten_)?(\w+)$")


def globs_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """From "a,b", or several of these."""
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, Iterable) or not all(isinstance(each, str) for each in several):
        raise TypeError(f"kernels must be a glob or several globs, not {given!r}")
    return tuple(glob.strip() for each in several for glob in each.split(",") if glob.strip())


class KernelFilter:
    """Globs that ignore case; without any, all kernels are wanted. Remembers names, for suggestions."""

    def __init__(self, globs: Iterable[str] = ()) -> None:
        self.globs = tuple(glob.strip().lower() for glob in globs if glob.strip())
        self._known: dict[tuple[int, str], bool] = {}
        self._names: set[str] = set()
        self._matched: set[str] = set()

    def wants(self, kernel: Kernel, device: str) -> bool:
        if not self.globs:
            return True
        key = (kernel.id, device)
        if key not in self._known:
            names = names_of(kernel, device)
            matched = {g for g in self.globs if any(fnmatchcase(name.lower(), g) for name in names)}
            self._matched |= matched
            self._names.add(kernel.name)
            self._known[key] = bool(matched)
        return self._known[key]

    def wants_site(self, site: Site) -> bool:
        return self.wants(site.kernel, site.device)

    @property
    def has_seen(self) -> bool:
        """Whether any kernel was looked up."""
        return bool(self._names)

    def complaints(self) -> list[str]:
        """The globs that no kernel matched, in words, once the program is over."""
        found = []
        for glob in self.globs:
            if glob in self._matched:
                continue
            if not self._names:
                found.append(f"no kernel matched {glob!r}: no kernel ran")
                continue
            by_lower = {name.lower(): name for name in self._names}
            near = get_close_matches(glob, by_lower, 3, 0.3) or sorted(by_lower)[:3]
            named = ", ".join(by_lower[name] for name in near)
            found.append(
                f"no kernel matched {glob!r}; the nearest of the {len(self._names)} that ran: {named}"
            )
        return found


def names_of(kernel: Kernel, device: str) -> list[str]:
    """`extern_kernels.addmm` is also `addmm` and AOTInductor's `aoti_torch_cuda_addmm_out`."""
    names = [kernel.name]
    if is_shim := _SHIM.match(kernel.name):
        operator = is_shim[1].removesuffix("_out")
        return [*names, operator, f"extern_kernels.{operator}"]
    if kernel.kind not in ("extern", "op"):
        return names
    parts = kernel.name.split(".")
    if parts[0] == "extern_kernels" and len(parts) == 2:
        operator, overload = parts[1], "out"
    elif len(parts) >= 3:
        operator, overload = parts[-2], parts[-1]
    else:
        operator, overload = parts[-1], ""
    shim = f"aoti_torch_{device.partition(':')[0] or 'cpu'}_{operator}"
    return [*names, operator, shim, f"{shim}_{overload}", f"{shim}_out"]
