"""Which requests are typical: the popularity of classes among accepted jobs, for the fragmentation score.

Source: Weng et al., USENIX ATC 2023, who take the distribution of requests of the recent past as the "target workload".
"""

from typing import Final

from clearway.engine.box import META_TYPICAL, TYPICAL_CLASS, TYPICAL_PPM
from clearway.engine.tables import Table, make_table

TYPICAL_MAX: Final = 16
"""Classes that count: the score's cost grows with each, and in real traces the first dozen are nearly all jobs."""
REMEMBERED_MAX: Final = 1 << 16
"""Accepted jobs after which all counts are halved, so that a workload that changes is followed within weeks."""
WORKED_OUT_EVERY: Final = 16
"""The table is worked out anew after one in so many more jobs: the first jobs at once, later ones ever more rarely."""


class TypicalClasses:
    """Counts by class, and the table [2, TYPICAL_MAX] of the most popular ones that compiled code reads."""

    __slots__ = ("counts", "due", "table", "total")

    def __init__(self) -> None:
        self.table: Table = make_table(2, TYPICAL_MAX)
        self.counts: dict[int, int] = {}
        self.total = 0
        self.due = 1

    def note(self, cls: int, meta: Table) -> None:
        """A job of the class was accepted; keeps the table and its length in `meta` true to the counts by and by."""
        self.counts[cls] = self.counts.get(cls, 0) + 1
        self.total += 1
        if self.total >= self.due:
            if self.total >= REMEMBERED_MAX:
                self._forget_half()
            self._work_out(meta)
            self.due = self.total + 1 + self.total // WORKED_OUT_EVERY

    def _forget_half(self) -> None:
        self.counts = {cls: count // 2 for cls, count in self.counts.items() if count > 1}
        self.total = sum(self.counts.values())

    def _work_out(self, meta: Table) -> None:
        """The most popular classes, the lower number first among equals, with their shares in millionths."""
        popular = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:TYPICAL_MAX]
        counted = sum(count for _, count in popular)
        meta[META_TYPICAL] = len(popular)
        for place, (cls, count) in enumerate(popular):
            self.table[TYPICAL_CLASS, place] = cls
            self.table[TYPICAL_PPM, place] = 1_000_000 * count // counted
