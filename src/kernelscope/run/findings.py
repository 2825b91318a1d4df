"""What the hashes of a run show about the roles that its kernels declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..events import Finding
from .call import KernelCall


def findings_in(calls: Iterable[KernelCall]) -> Iterator[Finding]:
    for call in calls:
        yield from undeclared_writes(call)
        yield from missing_writes(call)


def undeclared_writes(call: KernelCall) -> Iterator[Finding]:
    """Arguments that changed although nothing says that the kernel writes them."""
    storages = call.storages
    declared = {i for i, a in enumerate(call.arguments) if a.role in ("out", "inout")}
    written = {storages[i][0] for i in declared if i in storages}
    for i in sorted(call.changed_args - declared):
        # A declared output in the same memory explains the change: the argument is an alias of it.
        if i in storages and storages[i][0] in written:
            continue
        name = call.arg_names[i]
        yield Finding(
            "undeclared-write",
            f"{call.kernel_name} changed {name}, which it declares as an input only",
            call=call.index,
            kernel=call.kernel_name,
            arg=name,
        )


def missing_writes(call: KernelCall) -> Iterator[Finding]:
    """Declared outputs that still hold the sentinel they were filled with."""
    poison, post = call.poison_hashes, call.post_hashes
    for i in sorted(poison.keys() & post.keys()):
        if poison[i] == post[i]:
            name = call.arg_names[i]
            yield Finding(
                "never-written",
                f"{call.kernel_name} declares {name} as an output and wrote nothing to it",
                call=call.index,
                kernel=call.kernel_name,
                arg=name,
            )
