"""The exercises of lecture 08, synchronous and asynchronous."""

from __future__ import annotations

from labkit.exercises.delayed import (
    judge_descent,
    judge_server,
    judge_staleness,
    judge_step,
)
from labkit.exercises.function_task import FunctionTask
from labkit.exercises.task import Task

__all__ = ["TASKS"]


def _limit(delay: int) -> float:
    from labkit.updates import stability_limit

    return float(stability_limit(delay))


def _slow_staleness() -> float:
    """Of the slow worker, once it has found its rhythm."""
    from labkit.updates import simulate

    run = simulate(workers=4, mode="async", slow={3: 5.0}, updates=200)
    return float(max(run.staleness_counts(3)))


def _lockstep() -> float:
    """Gradients of the fast worker in a second, under a bound, in the long run."""
    from labkit.updates import simulate

    run = simulate(workers=2, mode="bounded", bound=3, compute=0.010, slow={1: 4.0}, updates=2000)
    return float(round(len(run.of(0)) / run.seconds))


TASKS = {
    "08.sync_step": Task(
        "Four workers need 30, 32, 31 and 90 ms for their gradients. Adding the gradients up takes "
        "5 ms more. How many ms does one synchronous step take?",
        lambda: max(30, 32, 31, 90) + 5.0,
        0.0,
        "Who has to be there before the sum can be finished?",
        "ms",
        "Three workers are done after 32 ms at most, and then they watch the fourth.",
    ),
    "08.somebody_is_late": Task(
        "A worker is held up in 1 % of its steps, and nobody knows when. In how many per cent of "
        "the synchronous steps of 100 such workers does somebody come late?",
        lambda: 100 * (1 - 0.99**100),
        0.01,
        "In what share of the steps is nobody late? All hundred must be in time at once.",
        "%",
        "Rare for one worker, usual for a hundred: 1 - 0.99 to the power of 100.",
    ),
    "08.async_rate": Task(
        "Four workers need 30, 30, 30 and 90 ms for a gradient, and nobody waits for anybody. How "
        "many gradients a second do they bring together?",
        lambda: 3 / 0.030 + 1 / 0.090,
        0.01,
        "How many gradients a second does each of them bring? Then add up.",
        "gradients/s",
        "111 a second. In lockstep it would be four in 90 ms: 44 a second.",
    ),
    "08.my_staleness": FunctionTask(
        "Write my_staleness(log): a list with the staleness of each push, in order. The log is a "
        'list of (worker, "pull") and (worker, "push").',
        judge_staleness,
        "Each push makes a new version. What was the version when this worker pulled last?",
        "A number for the version, and a note of who has read which: no more is needed.",
    ),
    "08.mean_staleness": Task(
        "16 equal workers have trained asynchronously for a long time. How stale is a gradient "
        "on average?",
        lambda: 16 - 1.0,
        0.0,
        "While a worker computes one gradient, how many does each of the others bring?",
        "updates",
        "Each of the other 15 pushes once between its pull and its push.",
    ),
    "08.slow_staleness": Task(
        "Three workers need 10 ms for a gradient and a fourth needs 50 ms. How stale is a gradient "
        "of the fourth when it arrives?",
        _slow_staleness,
        0.0,
        "How many gradients does each fast worker bring within 50 ms?",
        "updates",
        "3 × 5. Who is slow is seldom there, and then with the oldest news of all.",
    ),
    "08.my_server": FunctionTask(
        "Write my_server(inbox, weights, rate): answer each pull, apply each push at once, and "
        "return the last weights and a list with the staleness of each push.",
        judge_server,
        'message.kind is "pull" or "push". A pull wants message.reply(weights, version). A push '
        "has message.gradient, and message.version is that of the weights it was computed from.",
        "A parameter server is a loop with two branches, and none of them waits.",
    ),
    "08.my_descent": FunctionTask(
        "Write my_descent(step, delay, updates): a list with x before the first update and after "
        "each. Update k subtracts step × x[k - delay]; before there was an update, x was 1.",
        judge_descent,
        "x = [1.0]; then append x[-1] - step * x[...]. An index below 0 would count from the end "
        "of the list: max(0, ...) keeps it at the beginning.",
        "One old index: that is all the difference between the two ways to train.",
    ),
    "08.limit_by_hand": Task(
        "Delay 2, curvature 1: up to which step does the descent stay stable?",
        lambda: _limit(2),
        0.01,
        "Halve the interval: a step that dies out below it, one that grows above it.",
        "",
        "0.618, the golden ratio less one. Without a delay it was 2.",
    ),
    "08.rate_of_eight": Task(
        "8 equal workers, so a delay of 7. How many times smaller than without delay is the "
        "largest stable learning rate?",
        lambda: _limit(0) / _limit(7),
        0.01,
        "updates.stability_limit knows both.",
        "times",
        "Nearly ten times for eight workers: dividing by their number is nearly enough.",
    ),
    "08.my_step": FunctionTask(
        "Write my_step(delay): a step for each delay from 0 to 20 that brings x from 1 to below "
        "0.001, for good, within 12 × (delay + 1) updates.",
        judge_step,
        "The limit is where it no longer dies out at all; the best step lies well below. Which "
        "share of the limit does well at one delay? Try that share at the others.",
        "The larger the delay, the smaller the step, about in proportion: lr ~ 1 / delay.",
    ),
    "08.first_at_the_target": Task(
        "Four workers. Synchronous: 200 steps of 95 ms reach the target. Asynchronous: 111 updates "
        "a second, but 1,500 are needed. By how many seconds is the asynchronous run sooner?",
        lambda: 200 * 0.095 - 1500 / 111,
        0.02,
        "Seconds of the one, seconds of the other. Steps are not seconds, and neither are updates.",
        "s",
        "1,500 gradients instead of 800, and sooner done. Two factors decide: how many a second, "
        "and how many are needed.",
    ),
    "08.lockstep": Task(
        "A worker of 10 ms a gradient and one of 40 ms; nobody may be more than 3 gradients "
        "ahead. How many gradients a second does the fast one bring in the long run?",
        _lockstep,
        0.02,
        "Can it stay ahead for long? Who sets the pace once it is 3 steps ahead?",
        "gradients/s",
        "As many as the slow one. A bound forgives hiccups; it cannot forgive a worker that is "
        "always slow.",
    ),
    "08.lost_update": Task(
        "A counter on the server holds 5. Two workers read it, each adds 1 to what it read, each "
        "writes its result. What does the counter hold?",
        lambda: 6.0,
        0.0,
        "Both have read the same number.",
        "",
        "One update is lost, and nobody was told. A server that adds by itself loses none.",
    ),
    "08.eight_gpus": Task(
        "Eight equal GPUs in one machine with fast links. How do you begin: "
        '"synchronous" or "asynchronous"?',
        lambda: "synchronous",
        0.0,
        "How much would each of them wait for the others? (Write one of the two words in full.)",
        "",
        "Equal workers hardly wait, so there is nothing to gain, and staleness to pay.",
    ),
    "08.borrowed_laptops": Task(
        "Forty borrowed laptops, fast and slow ones; some are closed in the middle of the day. "
        'How do you begin: "synchronous" or "asynchronous"?',
        lambda: "asynchronous",
        0.0,
        "Which of the two goes on when one does not answer? (Write one of the two words in full.)",
        "",
        "Nobody waits for the slowest, and nobody for one who has gone. Lower the rate.",
    ),
}
