"""One command for several ranks of a run, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kernelscope.errors import RunError


def each_rank(args: argparse.Namespace, main: Callable[[argparse.Namespace], int]) -> int:
    """With --ranks, `main` for each of them under a heading; as JSON, one object with the ranks as keys."""
    if args.ranks is None:
        return main(args)
    from kernelscope.store import folder
    from kernelscope.store.ranks.rank_parts import rank_parts
    from kernelscope.views import plain

    if args.rank is not None or args.part:
        raise RunError("--ranks, --rank and --part exclude each other; give one of them")
    root = folder.resolve(args.run)
    known = rank_parts(root).runs
    chosen = args.ranks or list(known)
    if unknown := [rank for rank in chosen if rank not in known]:
        raise RunError(f"{root} has no rank {unknown[0]}; it has {', '.join(map(str, known))}")
    status, forms = 0, {}
    for rank in chosen:
        args.rank = rank
        with plain.gathered() as found:
            if not args.json:
                print(f"== rank {rank} of {root.name.removesuffix(folder.SUFFIX)} ==")
            status = max(status, main(args))
        if found:
            forms[str(rank)] = found[0]
    if forms:
        plain.dump({"ranks": forms})
    return status
