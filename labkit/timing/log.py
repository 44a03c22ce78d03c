"""What was timed, raw: every call, in which order, on which machine, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from labkit.kinds import Kind, measured, recorded, seconds_text

__all__ = ["Ending", "Log", "Machine", "Timed"]

Ending = Literal["stable", "unstable", "skipped", "unfinished"]


@dataclass(frozen=True)
class Machine:
    """Where and when something was timed, and how busy the machine was when it began."""

    text: str
    versions: dict[str, str]
    when: str
    load: float | None
    cores: int


@dataclass(frozen=True)
class Timed:
    """One candidate's calls, in seconds. `first` holds one call: tracing, compiling, starting."""

    name: str
    first: tuple[float, ...]
    warmup: tuple[float, ...]
    ending: Ending
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Log:
    """All calls of all candidates. Row r of `order` says who came when in round r."""

    timed: tuple[Timed, ...]
    order: tuple[tuple[int, ...], ...]
    asked: int
    stopped: Literal["", "interrupted", "deadline", "error"]
    machine: Machine
    on: str
    seed: int

    @property
    def rounds(self) -> int:
        """Rounds in which every candidate was timed."""
        return min(len(one.samples) for one in self.timed)

    @property
    def kind(self) -> Kind:
        """Measured today on this machine; anything else was recorded, and says where and when."""
        from labkit.hardware.survey import machine_text

        here = self.machine.text == machine_text()
        day = self.machine.when[:10]
        if here and day == datetime.now().astimezone().date().isoformat():
            return measured(self.on or self.machine.text)
        where = f"{self.on} of {self.machine.text}" if self.on else self.machine.text
        return recorded(where, day)

    def of(self, name: str) -> Timed:
        """The calls of one candidate."""
        return next(one for one in self.timed if one.name == name)

    def samples(self, name: str) -> tuple[float, ...]:
        """The samples of the complete rounds."""
        return self.of(name).samples[: self.rounds]

    def doubt(self, *names: str) -> str:
        """Why no verdict should be built on these candidates' samples, or nothing."""
        for name in names:
            one = self.of(name)
            if one.ending == "unstable":
                calls = len(one.warmup)
                return (
                    f"{name} was still warming up after {calls} calls: raise warmup=, "
                    "warmup_seconds= or deadline=, or give warmup=0 if it never settles"
                )
        return ""

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result must know about how it came about."""
        notes = []
        part = f"after {self.rounds} of {self.asked} rounds"
        if self.stopped == "interrupted":
            notes.append(f"Interrupted {part}.")
        elif self.stopped == "deadline":
            notes.append(f"Stopped at the deadline {part}.")
        elif self.stopped == "error":
            notes.append(f"Ended by an error {part}.")
        for one in self.timed:
            if one.ending == "unstable":
                notes.append(f"{one.name}: not warm after {len(one.warmup)} calls.")
            elif one.ending == "skipped":
                notes.append(f"{one.name}: warm-up skipped, as you asked.")
            if one.samples and sorted(one.samples)[len(one.samples) // 2] < 20e-6:
                short = seconds_text(sorted(one.samples)[len(one.samples) // 2])
                notes.append(
                    f"{one.name}: a call of {short} is as short as the clock's own cost. "
                    "Put a loop into it."
                )
        load = self.machine.load
        if load is not None and load > 0.5 * self.machine.cores:
            notes.append(
                f"The machine was busy at the start (load {load:.1f} on {self.machine.cores} "
                "cores). Stop other programs for narrower intervals."
            )
        return tuple(notes)
