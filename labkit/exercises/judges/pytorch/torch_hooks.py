"""Judges of what sends fewer bytes in PyTorch: DDP hooks that compress, and local SGD."""

from math import ceil
from typing import Any

import numpy as np

from labkit.exercises.judges.pytorch.torch_training import (
    Arrays,
    Case,
    Seen,
    added,
    examined,
    gradients,
    look_at_examples,
    look_at_start,
    look_at_update,
    near,
    network,
    plain_sgd,
    says,
    shares,
    times,
    trajectories,
)

FIRST = 2  # steps in which DDP builds its buckets
# Shapes of gradients; then their size, how many steps have them, and how far the mean of these may
# be off, as a share of the largest. A float16 is 0 below 6e-8, and infinite above 65,504.
FLOAT16 = ((24, 16), (8, 20), (24, 16)), ((1.0, 3, 2e-3), (4e4, 3, 2e-3), (1e-7, 16, 0.08))
LOW_RANK = ((4, 5), (6, 4)), ((1.0, 1, 1e-3), (1.0, 20, 0.3))


def torch_hook(*, low_rank: bool = False) -> Any:
    """The judge of my_hook(state, bucket), which adds to a gradient what it has lost before.

    It sends float16, or matrices of rank 1; a gradient that is there for one step is of rank 1.
    """
    shapes, kinds = LOW_RANK if low_rank else FLOAT16
    least = sum(4 * (m + n) if low_rank else 2 * m * n for m, n in shapes)

    def case(random: Any, ranks: int, size: float, steps: int, within: float) -> Case:
        columns = [random.uniform(0.5, 1, (m, 1)) for m, _ in shapes]  # the same on all ranks
        given = [
            [column * random.uniform(0.5, 1, shape[1]) if steps == 1 else
             random.choice([-1, 1], shape) * random.uniform(0.1, 1, shape) * size
             for column, shape in zip(columns, shapes, strict=True)]
            for _ in range(ranks)
        ]  # fmt: skip
        return {"program": "hook", "ranks": ranks, "steps": steps, "within": within,
                "given": [[one.astype("float32") for one in its] for its in given]}  # fmt: skip

    def cases(random: Any) -> list[Case]:
        return [case(random, ranks, *kind) for ranks in (2, 3, 1) for kind in kinds]

    def look(case: Case, seen: Seen) -> None:
        its = seen["ranks"][0]
        sent = sum(one["nbytes"] for one in its["events"][its["before"] :])
        look_at_gradients(case, [its["found"][FIRST:] for its in seen["ranks"]], sent)
        if sent > 1.1 * least and case["ranks"] > 1:
            raise says("hook bytes", sent=sent, least=least)

    return examined(look, cases)


def look_at_gradients(case: Case, found: list[Any], sent: int) -> None:
    """Compare what the optimizer gets with the mean over ranks, as one array for each step."""
    got = [np.array([joined(step) for step in its]) for its in found]
    own = [joined(its) for its in case["given"]]
    right, ranks = sum(own) / len(own), case["ranks"]
    most = abs(right).max()
    for rank, its in enumerate(got):
        if not np.isfinite(its).all():
            raise says("infinite", rank=rank)
    if any(abs(its - got[0]).max() > 1e-3 * most for its in got):
        raise says("differ" if sent else "hook local")
    first, mean = got[0][0], got[0].mean(axis=0)  # nothing is lost before the first
    factor = float(first @ right / (right @ right))
    if abs(factor - 1) > 0.25 and abs(first - factor * right).max() < 0.3 * factor * most:
        known = {ranks: "not divided", 1 / ranks: "twice"}
        keys = [key for one, key in known.items() if abs(factor / one - 1) < 0.1]
        raise says(keys[0] if keys else "hook factor", factor=factor)
    far, at_first = (float(abs(one - right).max() / most) for one in (mean, first))
    if far > case["within"]:
        lost = case["steps"] > 3 or at_first <= case["within"]
        raise says("feedback" if lost else "inexact", far=far, steps=case["steps"])


def joined(arrays: list[Any]) -> Any:
    """All elements, in one array of doubles."""
    return np.concatenate([one.ravel() for one in arrays]).astype("float64")


def torch_local_sgd() -> Any:
    """The judge of my_training(model, batches, every): weights are averaged, gradients never."""

    def cases(random: Any) -> list[Case]:
        found = []
        for ranks, every, steps in ((2, 3, 5), (3, 2, 4), (1, 2, 3), (4, 1, 2)):
            weights = network(random, sizes=(8, 8, 8))
            batches = shares(random, ranks, steps=steps)
            more = {"more": [every], "every": every, "steps": steps, "apart": True}
            found.append(plain_sgd(ranks, **{"weights": weights, "batches": batches, **more}))
        return found

    def look(case: Case, seen: Seen) -> None:
        look_at_start(case, seen)
        look_at_examples(case, seen)
        found, ranks, steps = trajectories(case, seen), case["ranks"], case["steps"]
        if (made := min(map(len, found)) - 1) < steps:
            raise says("few", found=made, wanted=steps)
        before = [Arrays() for _ in found]
        for step in range(steps):
            at, after = ([its[step + more] for its in found] for more in (0, 1))
            before = look_at_local_step(case, at, after, before, step)
        calls = [one for one in seen["ranks"][0]["events"] if one["what"] != "broadcast"]
        sent = sum(one["nbytes"] for one in calls) // steps
        least = (
            sum(one.nbytes for one in found[0][0].values()) * ceil(steps / case["every"]) // steps
        )
        if ranks > 1 and sent > 1.2 * least:
            raise says("hook bytes", sent=sent, least=least)

    return examined(look, cases)


def look_at_local_step(
    case: Case, at: list[Arrays], after: list[Arrays], before: list[Arrays], step: int
) -> list[Arrays]:
    """Has each rank made its own update, and are weights averaged when they must be?"""
    rate, every, given = case["rate"], case["every"], case["batches"][step]

    def changes(to: list[Arrays]) -> list[Arrays]:
        return [
            times(1 / rate, added([old, times(-1, new)])) for old, new in zip(at, to, strict=True)
        ]

    own = [added([old, times(-rate, gradients(case, old, *one))])
           for old, one in zip(at, given, strict=True)]  # fmt: skip
    mean = [times(1 / len(own), added(own))] * len(own)
    used, alone, averaged = map(changes, (after, own, mean))

    def like(wanted: list[Arrays]) -> bool:
        return all(near(one, two) == {*one} for one, two in zip(used, wanted, strict=True))

    averages = (step + 1) % every == 0 or step + 1 == case["steps"]
    if like(averaged if averages else alone):
        return used
    if like(alone):
        raise says("not averaged", step=step, every=every)
    if like(averaged):
        raise says("averaged early", step=step, every=every)
    if averages and like(changes([times(len(own), one) for one in mean])):
        raise says("added", step=step)
    for rank, one in enumerate([] if averages else given):
        alone_here = {**case, "batches": {step: [one]}}
        look_at_update(alone_here, [used[rank]], at[rank], [before[rank]], rank=0, step=step)
    raise says("not the mean", step=step)
