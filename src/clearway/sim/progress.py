"""How far a simulated job has come, in exact integer arithmetic.

Work is counted in millionths of a millisecond of reference run time, speed in millionths of the reference speed (ppm):
one millisecond at speed s adds s units. So no rounding adds up, and the end of a run is rounded up once.

Three marks, safe ≤ base ≤ total: `safe` survives a failure, `base` is what the job has when its present stretch of
work begins, `total` is all there is to do. A stretch is time on unchanged devices at unchanged speed: a pause (restart)
and then work, with a checkpoint of `cost_ms` after each `interval_ms` of it, none at the very end. Where only the speed
changes (`change_pace`), the next stretch carries on with the interval that it is in.
"""

from typing import Final

from clearway.model.jobs import Checkpoint
from clearway.model.units import FOREVER_MS

REFERENCE_PPM: Final = 1_000_000
"""The reference speed; also the units of work in a millisecond of reference run time."""


class Progress:
    """The work of one job over all its starts. Every method that takes `now_ms` must be called with rising times.

    useful_milli_ms, lost_milli_ms: device-time (thousandths × ms) that advanced work which is safe, and that went into
    work done again, restarts and checkpoints; taken by `settle`. Work neither safe nor lost yet is in neither.
    """

    __slots__ = (
        "_base",
        "_carried",
        "_cost_ms",
        "_interval",
        "_loose_milli_ms",
        "_lost_milli_ms",
        "_milli",
        "_ppm",
        "_since_ms",
        "_total",
        "_useful_milli_ms",
        "_work_from_ms",
        "is_in_memory",
        "safe",
    )

    def __init__(self, run_ms: int, checkpoint: Checkpoint | None) -> None:
        self._total = run_ms * REFERENCE_PPM
        self._interval = FOREVER_MS * REFERENCE_PPM if checkpoint is None else checkpoint.interval_ms * REFERENCE_PPM
        self._cost_ms = 0 if checkpoint is None else checkpoint.cost_ms
        self._base = 0
        self._carried = 0  # work in `base` that counts towards the first checkpoint of this stretch
        self.safe = 0
        self.is_in_memory = False
        self._since_ms = -1  # −1: no stretch is open
        self._work_from_ms = 0
        self._ppm = REFERENCE_PPM
        self._milli = 0
        self._loose_milli_ms = 0
        self._useful_milli_ms = 0
        self._lost_milli_ms = 0

    @property
    def saved_ms(self) -> int:
        """Reference run time that is safe, rounded down."""
        return self.safe // REFERENCE_PPM

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do (known after `pause`)."""
        return self._base >= self._total

    @property
    def ppm(self) -> int:
        """Speed of the stretch that is open, or of the last one."""
        return self._ppm

    @property
    def has_work(self) -> bool:
        """Whether there is anything to go on with (known after `pause`)."""
        return self._base > 0

    def work(self, now_ms: int, *, ppm: int, milli: int, pause_ms: int) -> int:
        """Begin a stretch on `milli` thousandths of devices: a pause, then work. Returns when the job would end."""
        assert self._since_ms < 0
        assert ppm > 0
        self._since_ms = now_ms
        self._work_from_ms = now_ms + pause_ms
        self._ppm = ppm
        self._milli = milli
        rest = self._total - self._base
        return self._work_from_ms - (-rest // ppm) + self._checkpoints_max * self._cost_ms

    def change_pace(self, now_ms: int, ppm: int) -> int:
        """Go on at another speed with what the stretch is at. Returns when the job would end.

        A checkpoint that is being written counts from now on, and the rest of its time becomes a pause.
        """
        elapsed = self._elapsed(now_ms)
        begun = elapsed - self._completed_checkpoints(elapsed) * self._period
        is_writing = begun > self._interval and self._completed_checkpoints(elapsed) < self._checkpoints_max
        pause_ms = -((begun - self._period) // self._ppm) if is_writing else max(0, self._work_from_ms - now_ms)
        self.pause(now_ms)
        if is_writing:
            self.save()
        else:
            self._carried = min(begun, self._interval)
        return self.work(now_ms, ppm=ppm, milli=self._milli, pause_ms=pause_ms)

    def pause(self, now_ms: int) -> None:
        """End the stretch, if one is open: regular checkpoints that were completed in it are safe from now on."""
        if self._since_ms < 0:
            return
        elapsed = self._elapsed(now_ms)
        checkpoints = self._completed_checkpoints(elapsed)
        begin = self._base - self._carried
        saved = checkpoints * self._interval
        loose = min(elapsed - checkpoints * self._period, self._interval, self._total - begin - saved)
        self._base = begin + saved + loose
        kept_milli_ms = 0
        if checkpoints:
            self.safe = begin + saved
            kept_milli_ms = self._device_time(saved - self._carried)
            self._useful_milli_ms += self._loose_milli_ms + kept_milli_ms
            self._loose_milli_ms = 0
        else:
            loose -= self._carried
        self._loose_milli_ms += self._device_time(loose)
        spent = self._milli * (now_ms - self._since_ms)
        self._lost_milli_ms += spent - kept_milli_ms - self._device_time(loose)
        self._since_ms = -1
        self._carried = 0

    @property
    def _period(self) -> int:
        """Units of elapsed work-or-checkpoint time from one completed checkpoint to the next."""
        return self._interval + self._cost_ms * self._ppm

    def _elapsed(self, now_ms: int) -> int:
        """Units of work-or-checkpoint time of the stretch, with what it carries."""
        return max(0, now_ms - self._work_from_ms) * self._ppm + self._carried

    @property
    def _checkpoints_max(self) -> int:
        """Checkpoints until the end of the work, from the begin of the interval in which the stretch began."""
        return max(0, self._total - self._base + self._carried - 1) // self._interval

    def _completed_checkpoints(self, elapsed: int) -> int:
        return min(elapsed // self._period, self._checkpoints_max)

    def _device_time(self, work: int) -> int:
        """Thousandths × ms that `work` took in this stretch, rounded down."""
        return self._milli * work // self._ppm

    def save(self) -> None:
        """All that was done is safe now."""
        self.safe = self._base
        self._useful_milli_ms += self._loose_milli_ms
        self._loose_milli_ms = 0

    def fall_back(self) -> None:
        """What was not safe is lost."""
        self._base = self.safe
        self._lost_milli_ms += self._loose_milli_ms
        self._loose_milli_ms = 0
        self.is_in_memory = False

    def waste(self, milli_ms: int) -> None:
        """Count device-time (thousandths × ms) spent on saving or moving."""
        self._lost_milli_ms += milli_ms

    def settle(self) -> tuple[int, int]:
        """(useful, lost) thousandths × ms since the last call."""
        settled = self._useful_milli_ms, self._lost_milli_ms
        self._useful_milli_ms = 0
        self._lost_milli_ms = 0
        return settled
