"""The checkers' books about power: caps and budget by events and commands alone, judged after each decision.

Plain and slow, and of no code with the engine's power step; `model.power` says to both what a watt is.
"""

from clearway.model.plan import Cap
from clearway.model.power import floor_watts, idle_watts, used_watts
from clearway.sim.shadow import Books


class PowerBooks:
    """budget: watts, None = any amount. caps: watts of each device, by node index."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.budget: int | None = None
        self.caps: dict[int, int] = {}
        self._drawn = 0

    def note(self, cap: Cap) -> str:
        """Take in a cap; "" or what is wrong with it."""
        if not 0 <= cap.node < len(self._books.nodes) or cap.watts < 0:
            return f"no such cap: {cap}"
        floors = [floor_watts(group.watts_max) for group in self._books.nodes[cap.node].spec.groups]
        if cap.watts and cap.watts < max(floors, default=0):
            return f"{cap} is below the floor of {max(floors)} W"
        self.caps[cap.node] = cap.watts
        return ""

    def drawn_watts(self, *, is_capped: bool = True) -> int:
        """What all devices draw, with the caps or as if there were none."""
        total = 0
        for number, node in enumerate(self._books.nodes):
            cap = self.caps.get(number, 0) if is_capped else 0
            begin = node.devices_begin
            for group in node.spec.groups:
                devices = self._books.devices[begin : begin + group.count]
                used = sum(1 for device in devices if device.holders)
                total += used * used_watts(group.watts_max, cap)
                total += (group.count - used) * idle_watts(group.watts_max)
                begin += group.count
        return total

    def begin_decision(self) -> None:
        """What happened is in the books; what is decided upon it is not yet."""
        if self.budget is not None:
            self._drawn = self.drawn_watts()

    def find_overdraw(self) -> str:
        """After a decision: "" or what is wrong with it. What already draws too much at its lowest caps is not stopped,
        but nothing is added to it."""
        if self.budget is None:
            return ""
        drawn = self.drawn_watts()
        if drawn > self.budget and drawn > self._drawn:
            return f"devices draw {drawn} W after {self._drawn} W, of at most {self.budget} W"
        if any(self.caps.values()) and self.drawn_watts(is_capped=False) <= self.budget:
            return f"nodes are capped ({self.caps}) without need"
        return ""
