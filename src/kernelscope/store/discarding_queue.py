"""Where launching threads put what nothing will write any more."""

from __future__ import annotations

from typing import Any


class DiscardingQueue(list[Any]):
    """A queue that keeps nothing, in place of one that some thread may be appending to."""

    def append(self, item: Any) -> None: ...
