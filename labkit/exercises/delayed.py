"""What judges the functions of lecture 08: logs to count in, workers to serve, old gradients."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["judge_descent", "judge_server", "judge_staleness", "judge_step"]

Log = list[tuple[int, str]]

# (worker, what it does), in the order in which the server saw it.
LOGS: tuple[Log, ...] = (
    [(0, "pull"), (0, "push"), (0, "pull"), (0, "push")],
    [(0, "pull"), (1, "pull"), (0, "push"), (1, "push")],
    [(0, "pull"), (1, "pull"), (2, "pull"), (1, "push"), (1, "pull"), (1, "push"), (0, "push"),
     (1, "pull"), (0, "pull"), (2, "push"), (0, "push"), (1, "push")],
    [(3, "pull"), (3, "push"), (7, "pull"), (3, "pull"), (7, "push"), (3, "push")],
)  # fmt: skip

# Seconds that each worker computes for each of its gradients, again and again.
TEAMS: tuple[tuple[tuple[float, ...], ...], ...] = (
    ((1.0,),),
    ((1.0,), (1.3,)),
    ((1.0, 1.4), (0.7,), (3.1,)),
)
RATE, PUSHES = 0.2, 9

# A delayed step is close enough when it stays this close to the minimum.
DELAYS = (0, 1, 2, 3, 5, 8, 12, 20)
CLOSE, UPDATES_PER_READ = 1e-3, 12


def reference_staleness(log: Log) -> list[int]:
    """How many updates came between the pull and the push of each gradient."""
    pushed: list[int] = []
    for here, (worker, what) in enumerate(log):
        if what == "push":
            pulled = max(k for k in range(here) if log[k] == (worker, "pull"))
            pushed.append(sum(what == "push" for _, what in log[pulled:here]))
    return pushed


def judge_staleness(function: Callable[[Log], Any]) -> str:
    """What is wrong with a function that counts staleness in a log."""
    for log in LOGS:
        found, true = function(list(log)), reference_staleness(log)
        counted = _whole(found)
        if counted is None:
            return f"It gives {found!r}, and a list of whole numbers is asked, one for each push."
        if counted != true:
            story = ", ".join(f"{worker} {what}es" for worker, what in log)
            return (
                f"The log {story.replace('pulles', 'pulls')} has staleness {true}; yours {counted}."
            )
    return ""


@dataclass
class Message:
    """What a worker sends: it asks for the weights ("pull"), or brings a gradient ("push")."""

    worker: int
    kind: str
    gradient: Any = None
    version: int = -1  # of the weights that the gradient was computed from
    answer: tuple[Any, Any] | None = field(default=None, repr=False)

    def reply(self, weights: Any, version: int) -> None:
        """Send the weights, and how many updates they have seen, to the worker that asked."""
        import numpy as np

        self.answer = (np.array(weights, dtype=float), version)


class Inbox:
    """The messages of workers that compute for a while, in the order in which they arrive.

    It keeps the weights that a faultless server would have, and stops at the first false answer.
    """

    def __init__(self, team: Sequence[Sequence[float]], start: Any, rate: float) -> None:
        self.team, self.rate = team, rate
        self.weights, self.version = start.copy(), 0
        self.staleness: list[int] = []
        self.fault = ""

    def gradient(self, worker: int, weights: Any) -> Any:
        """Each worker has data of its own, and so a minimum of its own."""
        import numpy as np

        return np.array([1.0, 2.0]) * (weights - np.array([worker + 1.0, -worker]))

    def __iter__(self) -> Iterator[Message]:
        queue = [(0.0, worker, "pull", 0) for worker in range(len(self.team))]
        under_way: dict[int, Message] = {}
        while self.version < PUSHES:
            now, worker, kind, turn = heapq.heappop(queue)
            if kind == "push":
                message = under_way.pop(worker)
                self.staleness.append(self.version - message.version)
                self.weights = self.weights - self.rate * message.gradient
                self.version += 1
                yield message
                heapq.heappush(queue, (now, worker, "pull", turn + 1))
                continue
            message = Message(worker, "pull")
            yield message
            self.fault = self._false(message)
            if self.fault:
                return
            gradient = self.gradient(worker, self.weights)
            under_way[worker] = Message(worker, "push", gradient, self.version)
            times = self.team[worker]
            heapq.heappush(queue, (now + times[turn % len(times)], worker, "push", turn))

    def _false(self, message: Message) -> str:
        """What is false about the answer to a pull."""
        import numpy as np

        if message.answer is None:
            return f"Worker {message.worker} asked for the weights and got no answer."
        weights, version = message.answer
        seen = _pushes(self.version)
        given = f"After {seen} worker {message.worker} asked and got"
        if not (weights.shape == self.weights.shape and np.allclose(weights, self.weights)):
            true = f"applied one by one, as they came, they make {_row(self.weights)}"
            return f"{given} the weights {_row(weights)}; {true}."
        if version != self.version:
            return f"{given} version {version!r}. The version is the number of pushes so far."
        return ""


def reference_server(inbox: Any, weights: Any, rate: float) -> tuple[Any, list[int]]:
    """The server of the lecture: what comes is applied, and nobody waits."""
    version, staleness = 0, []
    for message in inbox:
        if message.kind == "pull":
            message.reply(weights, version)
        else:
            weights = weights - rate * message.gradient
            staleness.append(version - message.version)
            version += 1
    return weights, staleness


def judge_server(function: Callable[..., Any]) -> str:
    """What is wrong with a server: it is run with one, two and three workers."""
    import numpy as np

    for team in TEAMS:
        start = np.array([4.0, 4.0])
        inbox = Inbox(team, start, RATE)
        found = function(inbox, start.copy(), RATE)
        with_team = f"With {len(team)} worker{'s' if len(team) > 1 else ''}: "
        if inbox.fault:
            return with_team + inbox.fault
        if not (isinstance(found, tuple) and len(found) == 2):
            return with_team + f"it gives {found!r}. Let it return weights, staleness."
        if inbox.version < PUSHES:
            return with_team + f"it ended after {_pushes(inbox.version)}, and more were to come."
        weights, staleness = found
        if np.shape(weights) != (2,) or not np.allclose(weights, inbox.weights):
            return with_team + f"it returns other weights than {_row(inbox.weights)}, the last."
        counted = _whole(staleness)
        if counted is None:
            return with_team + f"its second result is {staleness!r}; a list of numbers is asked."
        if counted != inbox.staleness:
            return with_team + f"the staleness is {inbox.staleness}; yours {counted}."
    return ""


def judge_descent(function: Callable[[float, int, int], Any]) -> str:
    """What is wrong with a function that descends with old gradients."""
    from labkit.updates import delayed

    for step, delay, updates in ((0.5, 0, 6), (0.5, 1, 6), (0.4, 3, 12), (1.5, 2, 4), (0.3, 5, 3)):
        found, true = function(step, delay, updates), delayed(step, delay, updates)
        called = f"At step {step}, delay {delay}, after {updates} updates: "
        try:
            walked = [float(one) for one in found]
        except (TypeError, ValueError, OverflowError):
            return called + f"it gives {found!r}, and a list of numbers is asked."
        if len(walked) != len(true):
            return (
                called + f"{len(walked)} values. The first x and one for each update: {len(true)}."
            )
        for k, (mine, theirs) in enumerate(zip(walked, true, strict=True)):
            if not math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-9):
                return called + f"x[{k}] is {mine:.4g} and should be {theirs:.4g}."
    return ""


def judge_step(function: Callable[[int], Any]) -> str:
    """What is wrong with a rule for the step: it is tried at delays from 0 to 20."""
    from labkit.updates import delayed

    for delay in DELAYS:
        found = function(delay)
        try:
            step = float(found)
        except (TypeError, ValueError, OverflowError):
            return f"At delay {delay} it gives {found!r}, and a number is asked."
        if not (math.isfinite(step) and step > 0):
            return f"At delay {delay} it gives {step:g}. A step is larger than 0."
        updates = UPDATES_PER_READ * (delay + 1)
        x = delayed(min(step, 1e3), delay, 2 * updates)
        # From here on for a whole delay and one update more: then nothing old can drive it out.
        far = max(abs(one) for one in x[updates : updates + delay + 1])
        if far < CLOSE:
            continue
        later = max(abs(one) for one in x[-delay - 1 :])
        if later > 0.9 * far:
            why = "It does not come closer: the step is too large for that delay."
        elif min(x) < -CLOSE:
            why = "It swings too far: a smaller step would be there sooner."
        else:
            why = "It creeps: a larger step would be there sooner."
        return (
            f"At delay {delay} and step {step:.3g}, after {updates} updates x is {far:.2g}. {why}"
        )
    return ""


def _whole(found: Any) -> list[int] | None:
    """A list of whole numbers, whatever holds them; None if it is something else."""
    try:
        counted = [int(one) for one in found if not isinstance(one, str)]
        same = len(counted) == len(found) and all(
            one == given for one, given in zip(counted, found, strict=True)
        )
    except (TypeError, ValueError, OverflowError):
        return None
    return counted if same else None


def _pushes(count: int) -> str:
    return f"{count} push{'' if count == 1 else 'es'}"


def _row(values: Any) -> str:
    return "[" + ", ".join(f"{one:.3g}" for one in values.ravel()[:4]) + "]"
