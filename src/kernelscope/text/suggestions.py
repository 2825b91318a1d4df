"""What a mistyped word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean show?", or nothing where no known word is near."""
    from difflib import get_close_matches  # only a mistake needs it

    names = list(dict.fromkeys(known))
    begins = [name for name in names if word and name.startswith(word)]
    near = begins[:3] or get_close_matches(word, names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
