"""The judge of federated rounds over links: the loss that they reach, and the bytes they take."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.exercises.judges.frameworks import error, softmax
from labkit.exercises.judges.over_links import over_links
from labkit.exercises.task import Wrong
from labkit.kinds import bytes_text

Array = npt.NDArray[Any]
Site = tuple[Array, Array]
CLIENTS, EXAMPLES, FEATURES, CLASSES = 4, 800, 100, 10
BATCH, RATE = 100, 0.2
MINIMUM = 1.305  # of the mean loss over all examples; that of zero weights is 2.303


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
            wrong = error(x[rows] @ weights.reshape(FEATURES, CLASSES), y[rows])
            weights = weights - RATE * (x[rows].T @ wrong).ravel()
    return weights


def rounds_over_links(told: Callable[..., None], mine: Callable[..., Any]) -> Any:
    """(comm, weights, x, y, local) → the trained weights on rank 0, the server."""
    arguments, programs = [mine] * (CLIENTS + 1), {"yours": _on_a_rank}
    measured = over_links(programs, arguments, answer=mine, rounds=1, link="20 Mbit/s")
    [run] = measured.values()
    (found, _), *others = run.results
    for rank, (_, calls) in enumerate(run.results):
        if (most := max((examples for _, examples, _ in calls), default=0)) > EXAMPLES:
            text = f"Rank {rank} has trained on {most:,} examples, and a client has {EXAMPLES}"
            raise Wrong(f"{text}. Examples must stay where they are. Send weights.")
    weights = np.asarray(found, float).ravel() if found is not None else np.zeros(0)
    if weights.shape != (FEATURES * CLASSES,):
        text = f"Rank 0 returned {weights.size} numbers"
        raise Wrong(f"{text}: return the {FEATURES * CLASSES:,} weights after the last round.")
    sent = [sum(run.traffic.bytes(f"host {host}")) for host in range(CLIENTS + 1)]
    host, rounds = int(np.argmax(sent)), max(1, *(len(calls) for _, calls in others))
    epochs = max(sum(epochs for epochs, *_ in calls) for _, calls in others) / rounds
    ran = f"in {rounds} round{'s' * (rounds > 1)} with E = {epochs:.3g}"
    counted = f"The kernel counted {bytes_text(sent[host])} on the link of host {host}, {ran}"
    last = np.array([calls[-1][2] for _, calls in others if calls])  # each client's last weights
    here, mean = weights[:8], last.mean(axis=0) if len(last) else np.ones(8)
    factor = float(here @ mean / (mean @ mean))
    told(
        run.traffic.picture(), joined=" ", ran=ran, counted=counted, epochs=epochs, factor=factor,
        loss=(reached := loss(weights)), sent=sent[host], trained=len(last),
        each=sent[host] / rounds / (2 * CLIENTS * FEATURES * CLASSES),
        alone=[rank for rank, one in enumerate(last, 1) if np.allclose(here, one, rtol=1e-2)],
        is_multiple=abs(factor - 1) > 0.02 and np.allclose(here, factor * mean, rtol=1e-2),
    )  # fmt: skip
    print(f"{counted}; the loss is {reached:.3f}.")
    return run.traffic.picture()


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
