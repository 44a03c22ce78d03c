"""What answers of lecture 61 are judged by: federated learning."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from labkit.exercises.judges import frameworks
from labkit.exercises.judges.framework_ranks import flower_rounds
from labkit.exercises.judges.model_parallel import Array, Case, Piece
from labkit.exercises.task import Wrong


def _shares(results: list[Array], examples: list[int]) -> dict[str, Array]:
    parts = zip(results, examples, strict=True)
    return {f"client {n}": k / sum(examples) * one for n, (one, k) in enumerate(parts)}


def fed_avg(ranks: int, rounds: int) -> Case:
    """(comm, weights, x, y, local, rounds) → the weights after the last round, on every rank."""
    rng = np.random.default_rng(ranks)
    examples = [3 * rank + 2 for rank in range(ranks)]
    starts = [rng.normal(size=5) for _ in examples]
    sites = [(rng.normal(size=(count, 5)), rng.normal(size=count)) for count in examples]

    def local(weights: Array, x: Array, y: Array) -> Array:
        return weights - 0.3 * np.tanh((x @ weights - y) @ x / len(y))

    weights = starts[0]
    for _ in range(rounds):
        parts = _shares([local(weights, *site) for site in sites], examples)
        weights = np.sum(list(parts.values()), axis=0)
    names = {who.replace("client", "rank"): part for who, part in parts.items()}
    name = f"average after {rounds} round{'s' * (rounds > 1)}"
    advice = "Start from rank 0's weights. In each round train from the last average, and "
    advice += "weigh each rank's result by len(y)."
    given = [(start, *site, local, rounds) for start, site in zip(starts, sites, strict=True)]
    return Case(given, [[Piece(name, names, advice)]] * ranks)


def split(mine: Callable[..., Any], classes: int, clients: int) -> dict[str, Any]:
    """What it makes of labels with one generator, with the same again, and with another one."""
    labels = np.random.default_rng(25).permutation(np.repeat(np.arange(classes), 40))
    found, again, other = (
        [np.asarray(one) for one in mine(labels.copy(), clients, np.random.default_rng(seed))]
        for seed in (1, 1, 2)
    )
    is_once = sorted(np.concatenate(found).tolist()) == [*range(len(labels))]
    counts = (np.bincount(labels[rows]) for rows in found * is_once)
    return {
        "is_once": is_once, "found": found, "again": again, "other": other,
        "alike": lambda one, other: all(map(np.array_equal, one, other)),
        "on": f"With {len(labels)} labels and {clients} clients", "each": len(labels) // clients,
        "counts": [count[count > 0] for count in counts],
    }  # fmt: skip


def masks(mine: Callable[..., Any], ranks: int) -> dict[str, Any]:
    """The masks of so many ranks, what they are without seeds, and whose sum shows something."""
    seeds, size = np.random.default_rng(ranks).integers(1, 2**31, (ranks, ranks)), 1000
    seeds = np.triu(seeds, 1) + np.triu(seeds, 1).T
    masks = [np.asarray(mine(rank, row.tolist(), size)) for rank, row in enumerate(seeds)]
    odd = [n for n, one in enumerate(masks) if one.shape != (size,) or one.dtype != np.uint32]
    facts = {"masks": masks, "odd": odd}
    if odd:
        return facts
    return facts | {
        "total": np.sum(masks, axis=0, dtype=np.uint32),
        "seedless": np.array_equal(masks[0], mine(0, [0] * ranks, size)),
        "seen": [some for count in range(1, ranks)
                  for some in itertools.combinations(range(ranks), count)
                  if not _is_random(np.sum([masks[k] for k in some], axis=0, dtype=np.uint32))],
    }  # fmt: skip


def _is_random(total: Any) -> bool:
    # The differences of a ramp are equal, and what repeats is known after a while.
    views = total, total - np.roll(total, 1), total - total[::-1], total << 16
    spread = [abs(one.std() / 2**32 - 0.29) < 0.03 for one in views]
    middle = [abs(one.mean() / 2**32 - 0.5) < 0.06 for one in views]
    return all(spread + middle) and len(np.unique(total)) >= len(total) - 9


def flower_client(train: Any) -> None:
    """Two sites, then one; a local step leaves 1 - lr of the distance to the site's target."""
    sites = [{"target": 1.0, "examples": 10}, {"target": 4.0, "examples": 30}]
    rounds = [{"local-steps": 3, "lr": 0.1}, {"local-steps": 2, "lr": 0.25}]
    [found] = frameworks.run("flower", flower_rounds, train, sites, rounds, ranks=1)

    def serial(
        kept: Callable[[int, float], float] = lambda steps, lr: (1 - lr) ** steps,
        examples: Sequence[int] = (10, 30),
        less: float = 0,
    ) -> Array:
        weights = np.zeros(2)
        for away, one in enumerate(rounds):
            keep, before = kept(int(one["local-steps"]), one["lr"]), weights
            local = [here["target"] + keep * (weights - here["target"]) for here in sites[away:]]
            weights = np.average(local, axis=0, weights=examples[away:]) - less * before
        return weights

    if not np.allclose(found, right := serial()):
        mistakes = {
            "It makes one local step, not config['local-steps'].": serial(lambda _, lr: 1 - lr),
            "It takes the gradient of the first local step for all. Compute it anew in each.": (
                serial(lambda steps, lr: 1 - steps * lr)
            ),
            "It goes up the gradient. Subtract it.": serial(lambda steps, lr: (1 + lr) ** steps),
            "It returns the change of the weights, and must return the weights.": serial(less=1),
            "FedAvg weighs by num-examples, which must be the node's.": serial(examples=(1, 1)),
        }
        text = (
            f"Two rounds of Flower's FedAvg end at {np.round(found, 4)}, not at {right.round(4)}."
        )
        why = (f" {why}" for why, wrong in mistakes.items() if np.allclose(found, wrong))
        why_not = next(why, " Begin with the weights of the message; config changes in each round.")
        raise Wrong(f"{text}{why_not}")
