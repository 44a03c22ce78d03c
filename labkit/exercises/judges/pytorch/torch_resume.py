"""The judge of a PyTorch training that is interrupted, and goes on with other numbers of ranks.

Its runs share a folder: one is killed after a step, the next while it saves, the last one ends.
Joined, they must be one training: each update continues the one before, each epoch has each example
once. Updates are looked at as `torch_training` does it, from the first one on.
"""

from typing import Any

import numpy as np

from labkit.exercises.judges.pytorch.torch_training import (
    Case,
    Seen,
    examined,
    gradients,
    look_at_start,
    look_at_updates,
    near,
    network,
    plain_sgd,
    rows,
    says,
    trajectories,
    whole,
)

EPOCHS, PER_EPOCH, BATCH = 3, 3, 12
STEPS, FEWER = EPOCHS * PER_EPOCH, 6  # with DCP, which takes longer
RUNS = {"ranks": 2, "stop": 4}, {"ranks": 3, "stop": None, "torn": 5}, {"ranks": 4, "stop": None}
SHARDED = {"ranks": 2, "stop": 2}, {"ranks": 3, "stop": 4}, {"ranks": 4, "stop": None}


def torch_resume(*, shards: bool = False) -> Any:
    """The judge of my_training(model, dataset, folder, after_step, epochs, batch).

    With `shards`, of my_training(model, mesh, images, labels, folder, after_step), which saves a
    model of FSDP2 by DCP.
    """

    def cases(random: Any) -> list[Case]:
        images = random.normal(size=(PER_EPOCH * BATCH, 6)).astype("float32")
        labels = random.integers(0, 4, PER_EPOCH * BATCH)
        if shards:
            images = random.normal(size=(FEWER, BATCH, 6)).astype("float32")
            labels = random.integers(0, 4, (FEWER, BATCH))
            more: dict[str, Any] = {"arrays": [images, labels], "shards": True}
        else:
            more = {"dataset": [images, labels], "more": [EPOCHS, BATCH], "apart": True}
        more |= {"weights": network(random, sizes=(6, 8, 4)), "momentum": 0.9, "past": ([], [])}
        more["program"] = "resume"
        return [
            plain_sgd(**{**more, **run, "steps": FEWER if shards else STEPS})
            for run in (SHARDED if shards else RUNS)
        ]

    return examined(look, cases)


def look(case: Case, seen: Seen) -> None:
    """Does this run continue the ones before it, whose weights and batches are in `past`?"""
    weights, batches = case["past"]
    begin, every = len(batches), seen["ranks"]
    if begin == case["steps"] and not any(its["steps"] for its in every):
        return
    # Where one rank was killed, others may be a step ahead of it.
    lines = [[*its["steps"], *([its["end"]] if "end" in its else ())] for its in every]
    for its, line in zip(every, lines, strict=True):
        *its["steps"], its["end"] = [*line, None][: min(map(len, lines)) or 1]
    joined = trajectories(case, seen) if all(its["steps"] for its in every) else []
    look_at_begin(case, seen, joined)
    shares = [
        [(images := np.concatenate(its["examples"][step]), _labels(case, images)) for its in every]
        for step in range(len(joined[0]) - 1)
    ]
    for one in shares:
        look_at_batch(case, one, batches)
        batches.append(whole(one))
    look_at_momentum(case, joined, batches[begin:])
    ranks = range(case["ranks"])
    before = [[(x[r :: len(ranks)], y[r :: len(ranks)]) for r in ranks] for x, y in batches[:begin]]
    # A last run is complete, and `torn` is, too, if nothing was saved by torch.save.
    wanted = case["steps"] if case["stop"] is None and not seen["killed"] else len(batches)
    found = {**case, "shards": False, "steps": wanted, "batches": before + shares}
    look_at_updates(found, _joined(seen, [weights[:-1] + its for its in joined]))
    said = [*range(begin + 1, len(batches) + 1)]
    for rank, its in enumerate(every):  # one may be a step ahead where another was killed
        if its["said"][: len(said)] != said:
            raise says("said", rank=rank, found=its["said"], wanted=said)
    weights[begin:] = joined[0]
    files = [name for its in every for name in its.get("files", ())]
    if case.get("shards") and files and not any(one.endswith(".distcp") for one in files):
        raise says("dcp")


def look_at_begin(case: Case, seen: Seen, joined: list[Any]) -> None:
    """Do all ranks begin where the run before it has ended?"""
    weights, batches = case["past"]
    begin, every = len(batches), seen["ranks"]
    if not all(its.get("units", True) for its in every):
        raise says("units")
    if not begin or not joined:
        look_at_start({**case, "shards": False}, _joined(seen, joined))
        return
    torn = case["ranks"] == RUNS[-1]["ranks"] and not case.get("shards")
    look_at_first_weights(weights, [its[0] for its in joined], torn=torn)
    begun = [its["said"][0] - 1 for its in every if its["said"]]
    for rank, one in enumerate(begun):
        if one != begun[0]:
            raise says("alone", rank=rank, found=one, wanted=begun[0])
        if one > begin:
            raise says("ahead", rank=rank, found=one, wanted=begin)


def _joined(seen: Seen, weights: list[Any]) -> Seen:
    """What was seen, with whole weights of each rank."""
    every = seen["ranks"]
    if not weights:
        return seen
    return {"ranks": [{**its, "steps": one[:-1], "end": one[-1]}
                      for its, one in zip(every, weights, strict=True)]}  # fmt: skip


def _labels(case: Case, images: Any) -> Any:
    """The labels of these images."""
    data, labels = case.get("arrays") or case["dataset"]
    known = dict(zip(rows([data.reshape(-1, data.shape[-1])]), labels.ravel(), strict=True))
    return np.array([known.get(row, 0) for row in rows([images])])


def look_at_first_weights(past: list[Any], first: list[Any], *, torn: bool) -> None:
    """Does each rank begin with the weights at which the run before it has ended?"""
    for rank, its in enumerate(first):
        if len(near(its, past[-1])) < len(its):
            found = [step for step, one in enumerate(past) if len(near(its, one)) == len(its)]
            if found and found[0] > 0:
                raise says("older", rank=rank, found=found[0], wanted=len(past) - 1)
            raise says("torn" if torn else "restored", rank=rank)


def look_at_batch(case: Case, shares: list[Any], batches: list[Any]) -> None:
    """Is the batch of all ranks the next one of its epoch?"""
    step, own = len(batches), [rows([images]) for images, _ in shares]
    found = [row for one in own for row in one]
    if len(own) > 1 and len(set(found)) < len(found):
        raise says("same")
    if len(found) != BATCH:
        raise says("global batch", step=step, found=len(found), wanted=BATCH)
    before = [set(rows([images])) for images, _ in batches]
    per_epoch = FEWER if "arrays" in case else PER_EPOCH
    if set(found) in before:
        old = before.index(set(found))
        first = not case["past"][0]
        raise says("epoch") if first and old % per_epoch == 0 else says("again", step=step, old=old)
    epoch = set().union(*before[step // per_epoch * per_epoch :])
    if set(found) & epoch or (
        "arrays" in case and set(found) != set(rows([case["arrays"][0][step]]))
    ):
        raise says("another order", step=step)


def look_at_momentum(case: Case, joined: list[Any], batches: list[Any]) -> None:
    """Is the momentum of earlier updates in the second one, and in the first after a restart?"""
    begin = len(case["past"][0])
    step = 0 if begin else 1
    for rank, its in enumerate(joined):
        if len(batches) > step:
            right = gradients(case, its[step], *batches[step])
            used = {n: (one - its[step + 1][n]) / case["rate"] for n, one in its[step].items()}
            if near(used, right) == set(used):
                raise says("optimizer" if begin else "plain", rank=rank)
