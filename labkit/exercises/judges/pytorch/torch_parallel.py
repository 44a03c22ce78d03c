"""Judges of tensor and pipeline parallelism in PyTorch: each must compute what one process does.

The truth is the same program with the whole layer, on one rank. Compared are the output, the
gradient of the input, and the output after an update, so that a layer may keep its weights as it
likes; counted are the numbers that a rank holds, and the bytes that it sends.
"""

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import function, judged
from labkit.exercises.judges.framework_ranks import torch_cases
from labkit.exercises.judges.frameworks import run
from labkit.exercises.judges.pytorch.torch_training import (
    Case,
    Seen,
    examined,
    network,
    sentences,
    speaker,
)
from labkit.exercises.task import Wrong
from labkit.kinds import LabError

WIDTH, HIDDEN, TOKENS = 12, 20, 8
SENT = {  # bytes, by what a rank gives to a collective of n
    "all_reduce": lambda n, given: 2 * (n - 1) / n * given,
    "all_gather": lambda n, given: (n - 1) * given,
    "reduce_scatter": lambda n, given: (n - 1) / n * given,
    "all_to_all": lambda n, given: (n - 1) / n * given,
}
SAYS = sentences("torch_parallel_mistakes.md")
says = speaker(SAYS)


def near(one: Any, other: Any) -> bool:
    """The same numbers, as float32 has them."""
    return bool(np.allclose(one, other, rtol=2e-3, atol=2e-4 * abs(other).max()))


def torch_layer(*, block: bool = False, tokens: bool = False, most: int = 2) -> Any:
    """The judge of my_layer(whole), which returns this rank's part of an MLP.

    A `block` is a layer of a transformer, with a mesh; with `tokens`, x and y are this rank's. At
    `most` so many all-reduces of the size of x suffice for a step, or what sends as many bytes.
    """
    truth: Seen = {}

    def cases(random: Any) -> list[Case]:
        if block:
            weights = block_weights(random)
            shape: tuple[int, ...] = (2, TOKENS, 16)
        else:
            weights = network(random, sizes=(WIDTH, HIDDEN, WIDTH))
            if not tokens:
                weights |= {"0.bias": random.normal(size=HIDDEN).astype("float32")}
                weights |= {"2.bias": random.normal(size=WIDTH).astype("float32")}
            shape = TOKENS, WIDTH
        arrays = [random.normal(size=(2, *shape)).astype("float32") for _ in range(2)]
        case = {"program": "layer", "weights": weights, "arrays": arrays, "rate": 0.05}
        case |= {"block": block, "tokens": tokens}
        alone = {**case, "ranks": 1}
        truth.update(run("torch", torch_cases, None, [alone], ranks=1)[0][0]["ranks"][0])
        return [{**case, "ranks": ranks} for ranks in ((2, 4) if block else (2, 1, 4))]

    def look(case: Case, seen: Seen) -> None:
        look_at_held(case, seen["ranks"])
        look_at_steps(case, seen["ranks"], truth)
        look_at_sent(case, seen["ranks"][0]["events"], most)

    return examined(look, cases)


def block_weights(random: Any) -> dict[str, Any]:
    """Of torch_observed.Block."""
    norms = [f"norm{n}.{kind}" for n in (1, 2) for kind in ("weight", "bias")]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(norms, (16,))
    shapes |= {f"attention.{one}.weight": (16, 16) for one in "qkvo"}
    shapes |= {f"mlp.{one}.weight": (24, 16) for one in ("gate", "up")}
    shapes["mlp.down.weight"] = 16, 24
    return {name: random.normal(0, 0.4, one).astype("float32") for name, one in shapes.items()}


def look_at_held(case: Case, ranks: list[Seen]) -> None:
    """Does each rank hold its share of the matrices, and nothing else of them?"""
    n, sizes = len(ranks), [one.size for one in case["weights"].values() if one.ndim > 1]
    vectors = sum(one.size for one in case["weights"].values() if one.ndim == 1)
    for rank, its in enumerate(ranks):
        if "returned" in its:
            raise says("returned", rank=rank, found=f"a {its['returned']}")
        held = sum(prod(one) for one in its["held"].values() if len(one) > 1)
        if held > sum(sizes) // n:
            raise says("whole", rank=rank, held=held, share=sum(sizes) // n)
        for name, shape in its["held"].items():
            if {*shape} == {HIDDEN, WIDTH // n} and n > 1 and not case["block"]:
                raise says("dimension", rank=rank, name=name, found=shape)
        if its["stored"] > 4 * (sum(sizes) // n + vectors):
            raise says("view", rank=rank)


def look_at_steps(case: Case, ranks: list[Seen], truth: Seen) -> None:
    """Compare y and the gradient of x with those of the whole layer, step by step."""
    n = len(ranks)
    for step, right in enumerate(truth["steps"]):
        y, dx = (np.split(one, n) if case["tokens"] else [one] * n for one in right)
        found = [its["steps"][step] for its in ranks]
        for rank, one in enumerate(found):
            if one[0].shape != y[rank].shape:
                raise says("shape", rank=rank, found=one[0].shape, wanted=y[rank].shape)
        for rank, one in enumerate(found):
            if not near(one[0], y[rank]):
                if step:
                    raise wrong_gradient(ranks, truth["gradients"][step - 1], step)
                raise wrong_output(case, ranks, right[0], rank)
        for rank, (_, its) in enumerate(found):
            factor = (its * dx[rank]).sum() / (dx[rank] ** 2).sum()
            if near(its, dx[rank]):
                continue
            if near(its, factor * dx[rank]):
                key = "input mean" if factor < 1 else "input times"
                raise says(key, rank=rank, factor=factor)
            alone = not case["tokens"] and near(sum(one[1] for one in found), right[1])
            raise says("no input sum" if alone else "dx", rank=rank)


def wrong_output(case: Case, ranks: list[Seen], right: Any, rank: int) -> Wrong:
    """Name what is wrong with an output."""
    n, found = len(ranks), [its["steps"][0][0] for its in ranks]
    bias = case["weights"].get("2.bias", np.ones(1))
    own = np.split(right, n)[rank] if case["tokens"] else right
    times = ((found[rank] - own) / bias).mean()
    if near(found[rank], own + times * bias) and round(times) in (n - 1, -1):
        return says("bias" if times > 0 else "no bias", times=round(times))
    if not case["tokens"] and any(near(sum(found) - k * bias, right) for k in (0, n - 1)):
        return says("no sum", rank=rank)
    if case["tokens"] and any(near(found[rank], one) for one in np.split(right, n)):
        return says("pieces", rank=rank)
    return says("y", rank=rank)


def wrong_gradient(ranks: list[Seen], right: dict[str, Any], step: int) -> Wrong:
    """Name the weight with a multiple of its gradient, wherever a rank has its numbers."""
    n = len(ranks)
    for rank, its in enumerate(ranks):
        for name, one in its["gradients"][step - 1].items():
            for factor in (n, 1 / n, n * n) if one.any() else ():
                for whole in right.values():
                    apart = abs(one.reshape(-1, 1) - factor * whole.reshape(1, -1)).min(axis=1)
                    if n > 1 and (apart < 1e-4 * abs(one).max()).all():
                        return says("weight times", name=name, rank=rank, factor=factor)
    return says("weight")


def look_at_sent(case: Case, events: list[Any], most: int) -> None:
    """Count the bytes that rank 0 has sent; all-reduces of x are their unit."""
    n, steps = case["ranks"], len(case["arrays"][0])
    enough = steps * most * SENT["all_reduce"](n, case["arrays"][0][0].nbytes)
    calls = [one for one in events if one["what"] in SENT]
    sent = sum(SENT[one["what"]](n, one["nbytes"]) for one in calls)
    if sent > 1.1 * enough:
        kinds = [one["what"] for one in calls]
        names = ", ".join(f"{kinds.count(one) / steps:g} {one}" for one in sorted({*kinds}))
        why = SAYS["block" if case["block"] else "tokens" if case["tokens"] else "layer"]
        raise says("bytes", sent=sent / enough, calls=names, why=why)


# A schedule.

SIZES = (4, 8, 4), (4, 8, 1), (3, 7, 5), (2, 3, 2), (1, 3, 1), (4, 8, 2)


def torch_schedule() -> Any:
    """The judge of my_schedule(stages, micro_batches, held): rows of PyTorch's actions.

    No rank stores more than `held` micro-batches, and a step is not longer than that of 1F1B with
    fewer forward passes first. PyTorch runs the rows of the last size.
    """
    from labkit import pipelines

    def rows_of(mine: Callable[..., Any]) -> Any:
        for stages, count, held in SIZES:
            size = {"stages": stages, "count": count, "held": held}
            texts = mine(stages, count, held)
            try:
                found = pipelines.Schedule(pieces(texts), "your schedule")
            except LabError as fault:
                raise says("schedule", **size, why=fault) from None
            timeline = found.timeline()
            best = pipelines.Schedule(limited(stages, count, held)).timeline().total
            why = ""
            if (found.stages, found.micro_batches) != (stages, count):
                why = f"it returned {found.stages} rows and {found.micro_batches} micro-batches."
            elif (most := max(timeline.peak_activations)) > held:
                rank = timeline.peak_activations.index(most)
                why = f"rank {rank} stores {most:g} micro-batches at its peak."
            elif timeline.total > best:
                why = f"with F = 1 and B = 2 a step takes {timeline.total:g}, and {best:g} suffice."
            if why:
                raise says("schedule", **size, why=why)
        return timeline, texts

    in_time = function(rows_of)

    def examine(mine: Callable[..., Any]) -> Any:
        timeline, texts = in_time(mine)
        run_schedule(texts, *SIZES[-1][:2])
        return timeline

    return judged(examine)


def limited(stages: int, count: int, held: int) -> Any:
    """1F1B in which no rank stores more than `held` micro-batches."""
    rows = []
    for rank in range(stages):
        ahead = min(stages - rank, held, count)
        turns = [one for m in range(count) for one in (("B", m), ("F", m + ahead))]
        rows.append([("F", m) for m in range(ahead)] + [one for one in turns if one[1] < count])
    return rows


def pieces(rows: Any) -> Any:
    """The rows of a schedule, from PyTorch's actions such as 0F3: I is a B, and B may hold a W."""
    try:
        rows = [[*row] for row in rows]
    except TypeError:
        raise LabError(f"it returned {rows!r:.60}: return a list of lists.") from None
    cut = any("W" in str(one) for row in rows for one in row)
    found: Any = []
    for rank, row in enumerate(rows):
        found.append([])
        for text in row:
            parts = re.fullmatch(r"(\d+)([FBIW])(\d+)", str(text))
            if not parts or int(parts[1]) != rank:
                raise LabError(
                    f"rank {rank} has the action {text!r}; one of its stage is '{rank}F0' or "
                    f"'{rank}B0', or with the backward pass in two '{rank}I0' and '{rank}W0'."
                )
            kind, m = parts[2], int(parts[3])
            found[-1].append(("B" if kind == "I" else kind, m))
            if kind == "B" and cut:
                found[-1].append(("W", m))
    return found


def run_schedule(rows: Any, stages: int, count: int) -> None:
    """PyTorch runs it: are the gradients of all stages those of one process?"""
    from labkit.exercises.truth import of_layers

    random = np.random.default_rng(24)
    case = {"program": "pipeline", "ranks": stages, "micro_batches": count, "rows": rows}
    case["weights"] = network(random, sizes=[6] * (stages + 1))
    x, y = case["arrays"] = [random.normal(size=(2 * count, 6)).astype("float32") for _ in "xy"]
    (seen,) = run("torch", torch_cases, None, [case], ranks=1)[0]
    if why := next((one for _, one in seen["faults"].values()), seen["why"]):
        raise Wrong(f"PyTorch does not run it: {why}")
    names = [(name, "") for name in case["weights"]]
    right = of_layers(names, case["weights"], x, lambda z: 2 * (z - y) / y.size, relu=False)
    for rank, its in enumerate(seen["ranks"]):
        (found,) = its["gradients"].values()
        if not near(found, right[f"{2 * rank}.weight"]):
            raise says("gradients", rank=rank)
