"""The tasks of lecture 12: synchronous and asynchronous updates."""

from labkit.exercises.judges.answers import function, function_task, number
from labkit.exercises.judges.server_loop import examine_server
from labkit.exercises.task import Task

TASKS = {
    "12.sync_step": Task(
        "Four workers need 30, 32, 31 and 90 ms for their gradients. Adding the gradients up takes "
        "5 ms more. How many ms does one synchronous step take?",
        number(95, "ms"),
        ("Which worker has to be ready before the sum can be finished?",),
        "answer = max(30, 32, 31, 90) + 5",
        "Three workers are ready after 32 ms at most, and then wait for the straggler.",
        slips={188: "The workers compute at the same time.", 90: "Adding up takes 5 ms more."},
    ),
    "12.stragglers": Task(
        "A worker is late in 1 % of its steps, at random. In how many % of the synchronous steps "
        "of 100 such workers is at least one late?",
        number(63.4, "%", within=0.01),
        (
            "In what share of the steps is none late?",
            "All hundred must be in time at once: 0.99 × 0.99 × …",
        ),
        """
none_late = 0.99**100
answer = 100 * (1 - none_late)
""",
        "Rare for one worker, usual for a hundred: 1 - 0.99 to the power of 100.",
        difficulty=2,
        slips={100: "Some steps have two late workers.", 36.6: "In these no worker is late."},
    ),
    "12.async_rate": Task(
        "Four asynchronous workers need 30, 30, 30 and 90 ms for a gradient. How many gradients a "
        "second do they push together?",
        number(111.1, "gradients/s", within=0.01),
        ("How many gradients a second does each of them push?", "Then add up."),
        "answer = sum(1 / seconds for seconds in (0.030, 0.030, 0.030, 0.090))",
        "111 a second. Synchronous training uses four in 90 ms: 44 a second.",
        slips={44.4: "That is the synchronous rate.", 88.9: "Add up the rates of the workers."},
    ),
    "12.my_server": Task(
        "Write my_server(inbox, weights, rate): answer each pull, apply each push at once, and "
        "return the last weights and a list with the staleness of each push.",
        function(examine_server),
        (
            'message.kind is "pull" or "push". A pull needs message.reply(weights, version).',
            "A push has message.gradient. Subtract rate × gradient from the weights; that makes a "
            "new version.",
            "The staleness of a push is version - message.version, before the version grows.",
        ),
        """
def my_server(inbox, weights, rate):
    version, staleness = 0, []
    for message in inbox:
        if message.kind == "pull":
            message.reply(weights, version)
        else:
            weights = weights - rate * message.gradient
            staleness.append(version - message.version)
            version += 1
    return weights, staleness
""",
        "A parameter server is a loop with two branches; each message is handled at once.",
        difficulty=2,
    ),
    "12.my_step": function_task(
        "Write my_step(seconds, backups): after how many seconds the weights are updated. seconds "
        "has the time of the gradient of each worker; the last backups gradients are not used.",
        [
            ([31, 90, 30, 32], 0),
            ([31, 90, 33, 30, 32], 1),
            ([5, 4, 3, 2, 1], 2),
            ([4, 4, 2], 1),
            ([7], 0),
        ],
        ("Without backups it is the time of the slowest.", "Sort the times."),
        """
def my_step(seconds, backups):
    used = len(seconds) - backups
    return sorted(seconds)[used - 1]
""",
        "One backup hides one straggler, and its gradient is computed for nothing.",
        slips=[
            ("used - 1", "-1", "It is the time of the slowest gradient that is used."),
            ("sorted(seconds)", "seconds", "Gradients arrive in the order of their times."),
            ("used - 1", "backups", "It waits for the slowest that is used, not the fastest."),
        ],
    ),
}
