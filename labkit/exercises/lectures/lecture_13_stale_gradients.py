"""The tasks of lecture 13: stale gradients."""

import math
from collections.abc import Callable
from typing import Any

from labkit.exercises.judges.answers import function, function_task, number, numbers_in, word
from labkit.exercises.task import Task, Wrong

# (worker, what it does), in the order in which the server saw it.
LOGS = (
    ([(0, "pull"), (1, "pull"), (0, "push"), (1, "push")],),
    ([(7, "pull"), (1, "pull"), (2, "pull"), (1, "push"), (1, "pull"), (1, "push"), (7, "push"),
      (1, "pull"), (7, "pull"), (2, "push"), (7, "push"), (1, "push")],),
)  # fmt: skip


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


PULLED_LAST = "A gradient is computed from what its worker pulled last, not first."
TASKS = {
    "13.my_staleness": function_task(
        "Write my_staleness(log): a list with the staleness of each push, in order. The log is a "
        'list of (worker, "pull") and (worker, "push").',
        LOGS,
        (
            "Each push makes a new version. What was the version when this worker pulled last?",
            "Keep a dictionary: for each worker the version that it has pulled. The staleness of "
            "a push is the current version minus that.",
        ),
        """
def my_staleness(log):
    version, pulled, found = 0, {}, []
    for worker, what in log:
        if what == "pull":
            pulled[worker] = version
        else:
            found.append(version - pulled[worker])
            version += 1
    return found
""",
        "You only need the current version, and the version that each worker has pulled.",
        slips=[
            ("version - pulled", "version + 1 - pulled", "A push does not make itself stale."),
            ("pulled[worker] = version", "pulled.setdefault(worker, version)", PULLED_LAST),
            ("return found", "return sorted(found)", "One for each push, in the log's order."),
        ],
        difficulty=2,
    ),
    "13.mean_staleness": Task(
        "16 equal workers train asynchronously. How stale is a gradient, on average?",
        number(15, "updates"),
        ("While a worker computes one gradient, how many does each of the others push?",),
        "answer = 16 - 1  # each of the others pushes one",
        "Each of the other 15 pushes once between its pull and its push.",
        slips={16: "A gradient does not make itself stale.", 8: "All 15 others push, not half."},
    ),
    "13.slow_staleness": Task(
        "Three workers need 10 ms for a gradient and a fourth needs 50 ms. How stale is a gradient "
        "of the fourth when it arrives?",
        number(15, "updates"),
        ("How many gradients does each fast worker push within 50 ms?", "There are three."),
        """
each_fast_worker = 50 / 10
answer = 3 * each_fast_worker
""",
        "3 × 5. The slowest worker pushes the fewest gradients, and the stalest.",
        slips={5: "That is what one fast worker pushes.", 3: "That is the mean of all four."},
    ),
    "13.my_descent": function_task(
        "Write my_descent(step, delay, updates): a list with x before the first update and after "
        "each. Update k subtracts step × x[k - delay]; before there was an update, x was 1.",
        [(0.5, 0, 6), (0.5, 1, 6), (0.4, 3, 12), (1.5, 2, 4), (0.3, 5, 3)],
        (
            "x = [1.0]; then append x[-1] - step * x[...], as often as there are updates.",
            "max(0, k - delay) keeps the index at 0 or above.",
        ),
        """
def my_descent(step, delay, updates):
    x = [1.0]
    for k in range(updates):
        x.append(x[k] - step * x[max(0, k - delay)])
    return x
""",
        "The only difference from plain gradient descent is the older index.",
        slips=[
            ("- step", "+ step", "Subtract the step: descent goes against the gradient."),
            (
                "x[max(0, k - delay)]",
                "(x[k - delay] if k >= delay else 0)",
                "Before there was an update, x was 1, not 0.",
            ),
            ("k - delay", "k", "The gradient is not old: use x[k - delay]."),
        ],
        difficulty=2,
    ),
    "13.limit_by_hand": Task(
        "Delay 2, curvature 1: up to which step does the descent stay stable?",
        number(0.61803, within=0.01),
        (
            "Halve the interval between a step with which x converges and one with which it "
            "diverges.",
            "updates.delayed(step, 2, 1000)[-1] is close to 0 below the limit, and huge above it.",
        ),
        """
from labkit import updates

stable, unstable = 0.0, 2.0
while unstable - stable > 1e-4:
    middle = (stable + unstable) / 2
    if max(map(abs, updates.delayed(middle, 2, 2000)[-3:])) < 1:
        stable = middle
    else:
        unstable = middle
answer = stable
""",
        "2 sin(pi / 10) = 0.618. Without a delay it is 2.",
        difficulty=2,
    ),
    "13.rate_of_eight": Task(
        "8 equal workers, so a delay of 7. How many times smaller than without delay is the "
        "largest stable learning rate?",
        number(9.567, "times", within=0.01),
        ("updates.stability_limit computes the limit for a delay.", "Divide two of its results."),
        """
from labkit import updates

answer = updates.stability_limit(0) / updates.stability_limit(7)
""",
        "Nearly ten times for eight workers: dividing by their number is nearly enough.",
        slips={10.85: "8 workers have a delay of 7.", 0.10453: "You gave the limit as a share."},
    ),
    "13.my_step": Task(
        "Write my_step(delay): a step for each delay from 0 to 20 that brings x from 1 to below "
        "0.001, for good, within 12 × (delay + 1) updates.",
        function(_examine_step),
        (
            "At the limit x no longer converges; the best step lies well below.",
            "updates.stability_limit(delay) is the limit. Which share of it is a good step at "
            "one delay? Try that share at the others.",
        ),
        """
def my_step(delay):
    return updates.stability_limit(delay) / 3
    # Or the largest step without any oscillation:
    #     return delay**delay / (delay + 1) ** (delay + 1)
""",
        "The largest useful step shrinks with the delay, about in proportion: lr ~ 1 / delay.",
        difficulty=2,
    ),
    "13.first_at_the_target": Task(
        "Four workers. Synchronous: 200 steps of 95 ms reach the target. Asynchronous: 111 updates "
        "a second, but 1,500 are needed. By how many seconds is the asynchronous run sooner?",
        number(5.486, "s", within=0.02),
        (
            "How long does the synchronous run take? Steps × seconds of a step.",
            "How long does the asynchronous one take? Updates / updates per second.",
        ),
        """
synchronous = 200 * 0.095
asynchronous = 1500 / 111
answer = synchronous - asynchronous
""",
        "1,500 gradients instead of 800, and still sooner: it computes more gradients a second.",
        slips={13.51: "That is the asynchronous run.", -5.486: "Subtract the other way round."},
    ),
    "13.bounded_staleness": Task(
        "A worker of 10 ms a gradient and one of 40 ms; the bound lets no worker be more than 3 "
        "gradients ahead. How many gradients a second does the fast one push in the long run?",
        number(25, "gradients/s", within=0.02),
        (
            "How long can the fast worker stay fast?",
            "Which worker sets the pace once it is 3 gradients ahead?",
        ),
        "answer = 1 / 0.040  # 3 ahead, the fast worker waits for each gradient of the slow one",
        "25 a second, as many as the slow one. A bound absorbs short delays, but no straggler.",
        difficulty=2,
        slips={100: "Only until it is 3 gradients ahead.", 125: "That is both, without a bound."},
    ),
    "13.eight_gpus": Task(
        "Eight equal GPUs in one machine with fast links. How do you begin: "
        '"synchronous" or "asynchronous"?',
        word("synchronous"),
        ("How much would each of them wait for the others?",),
        'answer = "synchronous"  # equal devices hardly wait for each other',
        "Equal workers hardly wait: asynchronous training gains little and pays with staleness.",
    ),
    "13.borrowed_laptops": Task(
        "Forty borrowed laptops, fast and slow ones; some are closed in the middle of the day. "
        'How do you begin: "synchronous" or "asynchronous"?',
        word("asynchronous"),
        ("Which of the two continues when one laptop does not answer?",),
        'answer = "asynchronous"  # a synchronous step waits for every worker',
        "No worker waits for the slowest, or for one that has left. Lower the learning rate.",
    ),
}
