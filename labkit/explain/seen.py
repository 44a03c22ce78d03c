"""What the watched run says: its step, its parts, its lines, rank by rank."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from labkit.explain.runs import Report
from labkit.explain.statements import Line

KINDS = ("optimizer", "tf", "tape", "apply", "backward")  # what ends a step, best first
WARM = 3


@dataclass
class Seen:
    """The reports of the processes that trained, and what they have in common."""

    ranks: list[Report]
    workers: list[Report]
    kind: str
    cwd: str

    @property
    def lead(self) -> Report:
        """The report of rank 0."""
        return self.ranks[0]

    @property
    def world(self) -> int:
        """The number of processes that trained."""
        return len(self.ranks)

    @property
    def steps(self) -> int:
        """The steps that every rank took."""
        return min(len(one["marks"][self.kind]) for one in self.ranks)

    @property
    def elapsed(self) -> float:
        """Seconds from the third step to the last."""
        marks = self.lead["marks"][self.kind]
        return max(1e-9, float(marks[-1] - marks[WARM - 1]))

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.elapsed / max(1, len(self.lead["marks"][self.kind]) - WARM)

    @property
    def spread(self) -> float:
        """How far steps are from their mean, as a share of it, without the longest twentieth."""
        marks = self.lead["marks"][self.kind][WARM - 1 :]
        times = sorted(b - a for a, b in itertools.pairwise(marks))
        times = times[: math.ceil(0.95 * len(times))]
        return float(statistics.pstdev(times) / max(1e-9, statistics.fmean(times)))

    @property
    def epoch(self) -> int:
        """Steps of an epoch, or 0."""
        starts = sorted(set(self.lead["epochs"]))
        lengths = [b - a for a, b in itertools.pairwise(starts)]
        return max(lengths, default=self.steps if starts else 0)

    @property
    def torch(self) -> bool:
        """Is it a program of PyTorch?"""
        return self.kind in ("optimizer", "backward")

    def share(self, part: str, rank: int | None = None) -> float:
        """The share of the loop's time in a part, on the rank where it is largest."""
        ranks = self.ranks if rank is None else [self.ranks[rank]]
        return float(max(one["window"].get(part, 0.0) for one in ranks) / self.elapsed)

    def count(self, name: str) -> int:
        """How often something happened, on the rank where it did most often."""
        return max(int(one["count"].get(name, 0)) for one in self.ranks)

    def note(self, name: str) -> Any:
        """What a hook noted under this name, or None."""
        return next((one["notes"][name] for one in self.ranks if name in one["notes"]), None)

    def site(self, *names: str) -> str:
        """The user's line at which the first of these was seen."""
        for one in self.ranks:
            for name in names:
                if one["sites"].get(name):
                    return self.short(one["sites"][name])
        return ""

    def short(self, place: str) -> str:
        """A place with its path from the working folder."""
        return place.replace(f"{self.cwd}/", "")

    @property
    def essential(self) -> set[Line]:
        """The lines without which there is no step."""
        found = {entry for one in self.ranks for entry in one["essential"]}
        return {(entry.rsplit(":", 1)[0], int(entry.rsplit(":", 1)[1])) for entry in found}

    @property
    def samples(self) -> int:
        """How many samples a rank has."""
        return max(1, *(int(one["samples"]) for one in self.ranks))

    def hot(self, *parts: str) -> tuple[str, str, float]:
        """Of samples in these parts: the user's line with most, what it calls, and its share."""
        lines: Counter[str] = Counter()
        callees: dict[str, Counter[str]] = {}
        for one in [*self.ranks, *self.workers]:
            for chain, callee, part, inside, times in one["chains"]:
                if chain and (one["worker"] or part in parts or inside in parts):
                    line = chain[-1].rsplit(":", 1)[0]
                    lines[line] += times
                    callees.setdefault(line, Counter())[callee] += times
        if not lines:
            return "", "", 0.0
        line, times = lines.most_common(1)[0]
        return self.short(line), callees[line].most_common(1)[0][0], times / lines.total()

    def threads_line(self) -> tuple[str, float]:
        """The user's line with most samples in threads beside the main one."""
        lines: Counter[str] = Counter()
        for one in self.ranks:
            for chain, _, _, _, times in one["threads"]:
                lines[chain[-1].rsplit(":", 1)[0]] += times
        if not lines:
            return "", 0.0
        line, times = lines.most_common(1)[0]
        return self.short(line), times / self.samples

    def imbalance(self) -> float:
        """CPU time of the busiest rank at each step, against the mean of all."""
        cpu = [one["cpu"] for one in self.ranks]
        count = min(map(len, cpu))
        steps = [[one[i + 1] - one[i] for one in cpu] for i in range(WARM, count - 1)]
        mean = sum(map(statistics.fmean, steps)) if steps else 0.0
        return sum(map(max, steps)) / mean if mean else 1.0

    def shapes(self) -> tuple[dict[int, int], float]:
        """Dimensions after the first that differ between ranks at a step, with their means."""
        lists = [one["shapes"] for one in self.ranks]
        count = min(map(len, lists))
        if len(lists) < 2 or count < 4 or all(rank[:count] == lists[0][:count] for rank in lists):
            return {}, 1.0
        flat = [shape for rank in lists for shape in rank[:count]]
        if len({len(one) for one in flat}) > 1:
            return {}, 1.0
        found, most = {}, 1.0
        for dim in range(1, len(flat[0])):
            values = [
                [shape[dim] for shape in step]
                for step in zip(*(r[:count] for r in lists), strict=True)
            ]
            longest = sum(map(max, values)) / max(1, sum(statistics.fmean(v) for v in values))
            if longest > 1.05:
                found[dim] = round(statistics.fmean(v for step in values for v in step))
                most = max(most, longest)
        return found, most


def seen(reports: list[Report], cwd: str) -> Seen | None:
    """What can be read, or nothing if no process took enough steps."""
    for kind in KINDS:
        ranks = [one for one in reports if len(one["marks"].get(kind, ())) > WARM + 1]
        if ranks:
            workers = [one for one in reports if one["worker"]]
            return Seen(ranks, workers, kind, cwd)
    return None
