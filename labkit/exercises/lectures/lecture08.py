"""The exercises of lecture 08, synchronous and asynchronous."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from labkit.exercises.judges import function, number, numbers_in, word
from labkit.exercises.parameter_server import examine_server
from labkit.exercises.task import Task, Wrong

# (worker, what it does), in the order in which the server saw it.
LOGS = (
    [(0, "pull"), (1, "pull"), (0, "push"), (1, "push")],
    [(7, "pull"), (1, "pull"), (2, "pull"), (1, "push"), (1, "pull"), (1, "push"), (7, "push"),
     (1, "pull"), (7, "pull"), (2, "push"), (7, "push"), (1, "push")],
)  # fmt: skip


def _examine_staleness(my_staleness: Callable[..., Any]) -> None:
    for log in LOGS:
        version, read, staleness = 0, {}, []
        for worker, kind in log:
            if kind == "pull":
                read[worker] = version
            else:
                staleness.append(version - read[worker])
                version += 1
        found = numbers_in(my_staleness(list(log)), "a list with a whole number for each push")
        if found != staleness:
            story = ", ".join(f"{w} {'pulls' if kind == 'pull' else 'pushes'}" for w, kind in log)
            raise Wrong(f"The log {story} has staleness {staleness}; yours {found}.")


def _examine_descent(my_descent: Callable[..., Any]) -> None:
    from labkit.updates import delayed

    for step, delay, updates in ((0.5, 0, 6), (0.5, 1, 6), (0.4, 3, 12), (1.5, 2, 4), (0.3, 5, 3)):
        case = f"At step {step}, delay {delay}, after {updates} updates:"
        true = delayed(step, delay, updates)
        found = numbers_in(my_descent(step, delay, updates), "a list of numbers")
        if len(found) != len(true):
            raise Wrong(f"{case} it returned {len(found)} numbers of {len(true)}.")
        for k, (mine, right) in enumerate(zip(found, true, strict=True)):
            if not math.isclose(mine, right, rel_tol=1e-6, abs_tol=1e-9):
                raise Wrong(f"{case} x[{k}] is {mine:.4g} and should be {right:.4g}.")


def _examine_step(my_step: Callable[..., Any]) -> None:
    from labkit.updates import delayed

    for delay in (0, 1, 2, 3, 5, 8, 12, 20):
        (step,) = numbers_in([my_step(delay)], "a number")
        if not 0 < step < math.inf:
            raise Wrong(f"At delay {delay} it returned {step:g}. A step is larger than 0.")
        updates = 12 * (delay + 1)
        x = delayed(min(step, 1e3), delay, 2 * updates)
        # For a whole delay and one update more: then no gradient in flight drives it out.
        far = max(map(abs, x[updates : updates + delay + 1]))
        if far < 1e-3:
            continue
        why = "It converges too slowly: a larger step is faster."
        if min(x) < -1e-3:
            why = "It oscillates: the step is too large for that delay."
        case = f"At delay {delay} and step {step:.3g}, after {updates} updates x is {far:.2g}."
        raise Wrong(f"{case} {why}")


TASKS = {
    "08.sync_step": Task(
        "Four workers need 30, 32, 31 and 90 ms for their gradients. Adding the gradients up takes "
        "5 ms more. How many ms does one synchronous step take?",
        number(90 + 5, "ms"),
        "Which worker has to be ready before the sum can be finished?",
        "Three workers are ready after 32 ms at most, and then wait for the straggler.",
    ),
    "08.stragglers": Task(
        "A worker is late in 1 % of its steps, at random. In how many % of the synchronous steps "
        "of 100 such workers is at least one late?",
        number(100 * (1 - 0.99**100), "%", within=0.01),
        "In what share of the steps is none late? All hundred must be in time at once.",
        "Rare for one worker, usual for a hundred: 1 - 0.99 to the power of 100.",
    ),
    "08.async_rate": Task(
        "Four asynchronous workers need 30, 30, 30 and 90 ms for a gradient. How many gradients a "
        "second do they bring together?",
        number(3 / 0.030 + 1 / 0.090, "gradients/s", within=0.01),
        "How many gradients a second does each of them bring? Then add up.",
        "111 a second. Synchronous training brings four in 90 ms: 44 a second.",
    ),
    "08.my_staleness": Task(
        "Write my_staleness(log): a list with the staleness of each push, in order. The log is a "
        'list of (worker, "pull") and (worker, "push").',
        function(_examine_staleness),
        "Each push makes a new version. What was the version when this worker pulled last?",
        "You only need the current version, and the version that each worker has pulled.",
    ),
    "08.mean_staleness": Task(
        "16 equal workers train asynchronously. How stale is a gradient, on average?",
        number(16 - 1, "updates"),
        "While a worker computes one gradient, how many does each of the others bring?",
        "Each of the other 15 pushes once between its pull and its push.",
    ),
    "08.slow_staleness": Task(
        "Three workers need 10 ms for a gradient and a fourth needs 50 ms. How stale is a gradient "
        "of the fourth when it arrives?",
        number(3 * 5, "updates"),
        "How many gradients does each fast worker bring within 50 ms?",
        "3 × 5. The slowest worker pushes the fewest gradients, and the stalest.",
    ),
    "08.my_server": Task(
        "Write my_server(inbox, weights, rate): answer each pull, apply each push at once, and "
        "return the last weights and a list with the staleness of each push.",
        function(examine_server),
        'message.kind is "pull" or "push". A pull wants message.reply(weights, version). A push '
        "has message.gradient, and message.version is that of the weights it was computed from.",
        "A parameter server is a loop with two branches; each message is handled at once.",
    ),
    "08.my_descent": Task(
        "Write my_descent(step, delay, updates): a list with x before the first update and after "
        "each. Update k subtracts step × x[k - delay]; before there was an update, x was 1.",
        function(_examine_descent),
        "x = [1.0]; then append x[-1] - step * x[...]. max(0, ...) keeps the index at 0 or above.",
        "The only difference from plain gradient descent is the older index.",
    ),
    "08.limit_by_hand": Task(
        "Delay 2, curvature 1: up to which step does the descent stay stable?",
        number(2 * math.sin(math.pi / 10), within=0.01),
        "Halve the interval between a step with which x converges and one with which it diverges.",
        "2 sin(pi / 10) = 0.618. Without a delay it is 2.",
    ),
    "08.rate_of_eight": Task(
        "8 equal workers, so a delay of 7. How many times smaller than without delay is the "
        "largest stable learning rate?",
        number(1 / math.sin(math.pi / 30), "times", within=0.01),
        "updates.stability_limit computes both.",
        "Nearly ten times for eight workers: dividing by their number is nearly enough.",
    ),
    "08.my_step": Task(
        "Write my_step(delay): a step for each delay from 0 to 20 that brings x from 1 to below "
        "0.001, for good, within 12 × (delay + 1) updates.",
        function(_examine_step),
        "At the limit x no longer converges; the best step lies well below. Which share of the "
        "limit does well at one delay? Try that share at the others.",
        "The largest useful step shrinks with the delay, about in proportion: lr ~ 1 / delay.",
    ),
    "08.first_at_the_target": Task(
        "Four workers. Synchronous: 200 steps of 95 ms reach the target. Asynchronous: 111 updates "
        "a second, but 1,500 are needed. By how many seconds is the asynchronous run sooner?",
        number(200 * 0.095 - 1500 / 111, "s", within=0.02),
        "How long does each run take? Steps × time of a step; updates / updates per second.",
        "1,500 gradients instead of 800, and still sooner: it computes more gradients a second.",
    ),
    "08.bounded_staleness": Task(
        "A worker of 10 ms a gradient and one of 40 ms; the bound lets no worker be more than 3 "
        "gradients ahead. How many gradients a second does the fast one bring in the long run?",
        number(1 / 0.040, "gradients/s", within=0.02),
        "How long can it stay ahead? Which worker sets the pace once it is 3 gradients ahead?",
        "25 a second, as many as the slow one. A bound absorbs short delays, but no straggler.",
    ),
    "08.lost_update": Task(
        "A counter on the server holds 5. Two workers read it, each adds 1 to what it read, each "
        "writes its result. What does the counter hold?",
        number(5 + 1),
        "Both workers have read the same number. What does each of them write?",
        "A race condition: an unsynchronised read-modify-write loses updates.",
    ),
    "08.eight_gpus": Task(
        "Eight equal GPUs in one machine with fast links. How do you begin: "
        '"synchronous" or "asynchronous"?',
        word("synchronous"),
        "How much would each of them wait for the others?",
        "Equal workers hardly wait: asynchronous training gains little and pays with staleness.",
    ),
    "08.borrowed_laptops": Task(
        "Forty borrowed laptops, fast and slow ones; some are closed in the middle of the day. "
        'How do you begin: "synchronous" or "asynchronous"?',
        word("asynchronous"),
        "Which of the two goes on when one does not answer?",
        "No worker waits for the slowest, or for one that has left. Lower the learning rate.",
    ),
}
