"""What threads are called: the main thread, and others by the order of their first calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from .threads import Pair, Work


@dataclass(frozen=True)
class ThreadNames:
    """Of each run, by number. Threads that belong together have one name, that of the first run."""

    of_a: dict[int, str] = field(default_factory=dict)
    of_b: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(a: Work, b: Work, threads: list[Pair]) -> ThreadNames:
        of_a, of_b = _names(a), _names(b)
        names = {other: of_a[one] for one, other in threads if one is not None and other is not None}
        alone = {thread: name for thread, name in of_b.items() if thread not in names}
        taken = set(of_a.values())
        return ThreadNames(
            of_a,
            names | {t: f"{name} of the second run" if name in taken else name for t, name in alone.items()},
        )


def _names(work: Work) -> dict[int, str]:
    total = len(work.threads)
    named = {thread: f"thread {n} of {total}" for n, thread in enumerate(work.threads, 1)}
    return named | ({work.main: "the main thread"} if work.main in named and work.knows_main else {})
