"""The judge of federated rounds over links: the loss that they reach, and the bytes they take."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.exercises.judges.over_links import over_links
from labkit.exercises.task import Wrong
from labkit.kinds import bytes_text

Array = npt.NDArray[Any]
Site = tuple[Array, Array]
CLIENTS, EXAMPLES, FEATURES, CLASSES = 4, 800, 100, 10
BATCH, RATE = 100, 0.2
MINIMUM, GOAL = 1.305, 1.328  # of the mean loss over all examples; that of zero weights is 2.303
MOST = 250_000  # bytes on a link, in both directions together
MANY = 10  # local epochs; with 20, client drift keeps the loss above 1.338 in all rounds


def softmax(scores: Array) -> Array:
    """Of each row."""
    powers: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def sites() -> list[Site]:
    """The examples of each client, whose labels follow a rule of its own."""
    random, found = np.random.default_rng(25), []
    common = 0.3 * random.normal(size=(FEATURES, CLASSES))
    for _ in range(CLIENTS):
        own = common + 0.3 * random.normal(size=common.shape)
        x = random.normal(size=(EXAMPLES, FEATURES))
        below = softmax(x @ own).cumsum(axis=1) < random.random((EXAMPLES, 1))
        found.append((x, below.sum(axis=1).clip(0, CLASSES - 1)))
    return found


def loss(weights: Array) -> float:
    """The mean cross-entropy of all clients' examples."""
    x, y = map(np.concatenate, zip(*sites(), strict=True))
    scores = x @ weights.reshape(FEATURES, CLASSES)
    scores -= scores.max(axis=1, keepdims=True)
    found = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]
    return float(found.mean())


def train(weights: Array, x: Array, y: Array, epochs: int, random: np.random.Generator) -> Array:
    """Local epochs of SGD."""
    for _ in range(epochs):
        order = random.permutation(len(y))
        for first in range(0, len(y), BATCH):
            rows = order[first : first + BATCH]
            error = softmax(x[rows] @ weights.reshape(FEATURES, CLASSES))
            error[np.arange(len(rows)), y[rows]] -= 1
            weights = weights - RATE * (x[rows].T @ error).ravel() / len(rows)
    return weights


def rounds_over_links(mine: Callable[..., Any]) -> Any:
    """(comm, weights, x, y, local) → the trained weights on rank 0, the server."""
    arguments, programs = [mine] * (CLIENTS + 1), {"yours": _on_a_rank}
    [run] = over_links(programs, arguments, rounds=1, link="20 Mbit/s").values()
    (found, _), *others = run.results
    for rank, (_, calls) in enumerate(run.results):
        if (most := max((examples for _, examples, _ in calls), default=0)) > EXAMPLES:
            text = f"Rank {rank} has trained on {most:,} examples, and a client has {EXAMPLES}"
            raise Wrong(f"{text}: examples must stay where they are. Send weights.")
    weights = np.asarray(found, float).ravel() if found is not None else np.zeros(0)
    if weights.shape != (FEATURES * CLASSES,):
        text = f"Rank 0 returned {weights.size} numbers"
        raise Wrong(f"{text}: return the {FEATURES * CLASSES:,} weights after the last round.")
    sent = [sum(run.traffic.bytes(f"host {host}")) for host in range(CLIENTS + 1)]
    host, rounds = int(np.argmax(sent)), max(1, *(len(calls) for _, calls in others))
    epochs = max(sum(epochs for epochs, *_ in calls) for _, calls in others) / rounds
    ran = f"in {rounds} round{'s' * (rounds > 1)} with E = {epochs:.3g}"
    counted = f"The kernel counted {bytes_text(sent[host])} on the link of host {host}, {ran}"
    reached, faults = loss(weights), []
    if not reached <= GOAL:
        last = np.array([calls[-1][2] for _, calls in others if calls])
        why = _why_not(weights, last, epochs) or f"That is too few: {ran}."
        faults += [f"The loss is {reached:.3f}, and must be at most {GOAL}. {why}"]
    if sent[host] > MOST:
        why = "More local epochs in each round need fewer rounds."
        if sent[host] / rounds / (2 * CLIENTS * FEATURES * CLASSES) > 7:
            why = "Each weight takes 8 bytes: send arrays of float32."
        faults += [f"{counted}, and at most {bytes_text(MOST)} may pass. {why}"]
    if faults:
        raise Wrong(" ".join(faults), run.traffic.figure())
    print(f"{counted}; the loss is {reached:.3f}.")
    return run.traffic.figure()


def _why_not(weights: Array, last: Array, epochs: float) -> str:
    """What the result shows beside the clients' last weights."""
    if not len(last):
        return "No client has called local."
    mean, here = last.mean(axis=0), weights[: last.shape[1]]
    factor = float(here @ mean / (mean @ mean))
    for rank, one in enumerate(last, start=1):
        if np.allclose(here, one, rtol=1e-2):
            return f"Rank 0 returned the weights of rank {rank} alone: return the average."
    if abs(factor - 1) > 0.02 and np.allclose(here, factor * mean, rtol=1e-2):
        text = f"The result is {factor:.3g} times the mean of the clients' weights"
        return f"{text}: divide their sum by the number of clients, without the server."
    if epochs > MANY:
        text = f"With E = {epochs:.3g} the clients drift apart, and more rounds do not help"
        return f"{text}: make fewer local epochs and more rounds."
    return ""


def _on_a_rank(comm: Any, mine: Callable[..., Any]) -> Any:
    """What the student's function returns, and of each call of `local` what can be compared."""
    rank = comm.Get_rank()
    nothing = np.zeros((0, FEATURES)), np.zeros(0, int)  # the server's
    x, y = sites()[rank - 1] if rank else nothing
    random, calls = np.random.default_rng(rank), []

    def local(weights: Any, x: Any, y: Any, epochs: int) -> Array:
        start = np.array(weights, float).ravel()
        trained = train(start, np.asarray(x), np.asarray(y), epochs, random)
        calls.append((epochs, len(y), trained[:8]))
        return trained

    return mine(comm, np.zeros(FEATURES * CLASSES), x, y, local), calls
