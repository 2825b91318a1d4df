"""Broadcasts and all-gathers in the tables: whether each rank got what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from kernelscope.analysis.ranks.deviation import COLLECTIVE
from kernelscope.analysis.ranks.sent.transfers import Piece, Transfer, compare, ordered

from .dataset import Dataset
from .meetings import Found


class SentValues:
    """Compares on creation; `meetings` are those where something differs."""

    def __init__(self, tables: Dataset) -> None:
        self.compared = 0
        self.meetings: set[int] = set()
        self.deviations = list(self._look(tables))

    def _look(self, tables: Dataset) -> Iterator[Found]:
        if "sent" in tables.missing:
            return
        rows = tables.dictionaries(
            'SELECT meeting, rank, "index", kernel_name, process_group, members, number, root, "names", '
            f"sent_names, sent, got, {_pieces(tables)} AS pieces "
            "FROM collectives SEMI JOIN met USING (meeting) WHERE len(sent_names) + len(got) > 0 "
            "AND meeting NOT IN (SELECT meeting FROM collectives GROUP BY meeting "
            "HAVING min(kernel_name) <> max(kernel_name)) "
            "ORDER BY number, meeting, rank"
        )
        for meeting, group in groupby(rows, key=lambda row: int(row["meeting"])):
            members = list(group)
            by_rank = {row["rank"]: _transfer(row) for row in members}
            first = members[0]
            ranks = [int(word) for word in first["members"].split(",") if word]
            compared, wrong = compare(by_rank, ranks, first["number"], first["process_group"])
            self.compared += compared
            for each in ordered(wrong):
                self.meetings.add(meeting)
                index, other = by_rank[each.rank].index, by_rank[each.other].index
                yield Found(
                    COLLECTIVE, each.rank, index, each.reason, each.argument, (each.rank,), each.other, other
                )


def _transfer(row: dict[str, Any]) -> Transfer:
    sent = dict(zip(row["sent_names"], row["sent"], strict=True))
    gave = dict(zip(row["names"], row["got"], strict=True))
    pieces = Piece.named(row["pieces"])
    return Transfer(row["kernel_name"], row["index"], row["root"], sent, gave, pieces)


def _pieces(tables: Dataset) -> str:
    return "[]" if "pieces" in tables.missing else "pieces"
