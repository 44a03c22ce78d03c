"""Judges of PyTorch functions: each update must use the gradient of one process, in NumPy.

Ranks are threads of one forked rank (`torch_ranks`), which leave data (`torch_observed`). Compared
are, at the student's own weights, the gradients that updates have used; counted are bytes, calls,
and what begins before the last gradient is there. What differs has a name.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import judged
from labkit.exercises.judges.framework_ranks import torch_cases
from labkit.exercises.judges.frameworks import error, run, softmax
from labkit.exercises.task import NotJudged, Wrong
from labkit.kinds import LabError

STEPS, RATE, BATCH, MOMENTUM = 3, 0.125, 24, 0.9
WIDTH, LAYERS = 64, 8  # of the network whose bytes are counted
MODEL = 4 * LAYERS * WIDTH * WIDTH  # its bytes
WHEN = "between steps", "at the peak"
TIED = [("first.weight", ""), ("frozen.weight", ""), ("middle.weight", "middle.bias"),
        ("first.weight", "")]  # fmt: skip
Case = dict[str, Any]
Seen = dict[str, Any]
Arrays = dict[str, Any]


def sentences(file: str) -> dict[str, str]:
    """Of each mistake."""
    text = Path(__file__).with_name(file).read_text("utf-8")
    found = re.findall(r"^- \*\*(.+?)\*\* (.+(?:\n  .+)*)", text, re.MULTILINE)
    return {key: " ".join(words.split()) for key, words in found}


def speaker(said: Mapping[str, str]) -> Callable[..., Wrong]:
    """says(key, ...) is the sentence of a mistake."""

    def says(key: str, **values: Any) -> Wrong:
        fault = Wrong(said[key].format(**values))
        fault.key = key  # type: ignore[attr-defined]
        return fault

    return says


SAYS = sentences("torch_mistakes.md")
says = speaker(SAYS)


def examined(look: Callable[[Case, Seen], None], cases: Callable[[Any], list[Case]]) -> Any:
    """The judge of a function: what ranks do with it in all cases, made of random numbers."""

    def examine(answer: Any) -> None:
        # Where a grade depends on the numbers, an answer cannot know them before.
        seed = secrets.randbits(32) if hasattr(answer, "_beside") else 24
        wanted = cases(np.random.default_rng(seed))
        try:
            (found,) = run("torch", torch_cases, answer, wanted, ranks=1)
        except LabError as fault:  # the stack of its first thread says nothing
            late = re.match(r"It had not ended after [^.]+", str(fault))
            raise Wrong(f"{late[0]}: look for a loop without an end.") if late else fault from None
        for case, seen in zip(wanted, found, strict=True):
            try:
                look_at_calls(seen)
                look(case, seen)
            except Wrong as fault:
                fault.args = (f"On {case['ranks']} rank{'s' * (case['ranks'] > 1)}: {fault}",)
                raise

    return judged(examine)


# What all of them ask first.


FAULTS = {  # what an exception of torch means here
    "register a hook": "hook",
    "zip archive": "torn",
    ".metadata": "half",
    "Invariant encountered": "order",  # FSDP2's, in the first forward pass
    "NoneType": "empty",
}


def look_at_calls(seen: Seen) -> None:
    """Did all ranks come to their end, and wait for what they have begun?"""
    written = [{*its.get("saves", ())} for its in seen["ranks"]]
    if len(written) > 1 and set.intersection(*written):
        raise says("one file")
    for rank, (fault, why) in seen["faults"].items():
        if any(words in fault for words in ("No backend type", "GLOO backend", "CPU backend")):
            raise NotJudged(SAYS["lacks"].format(why=fault))
        key = next((key for words, key in FAULTS.items() if words in fault), "raised")
        raise says(key, rank=rank, why=why)
    for rank, its in enumerate(seen["ranks"]):
        for call in its["events"]:
            if call["again"]:
                raise says("flight", rank=rank)
            sent = call["what"] == "send" or call["is_flag"]
            if not (call["waited"] or seen["why"] or seen["killed"] or sent):
                raise says("handle", rank=rank, what=call["what"])
    if seen["why"]:
        raise says("stuck", why=seen["why"])


def trajectories(case: Case, seen: Seen) -> list[list[Arrays]]:
    """The weights of each rank before each step, and at the end; shards are joined."""
    ranks = [[*its.get("steps", ()), its["end"]] for its in seen["ranks"]]
    if case["program"] == "split":
        joined = [{**a, **b} for a, b in zip(*ranks, strict=True)]
        return [joined] * len(ranks)
    if case.get("shards"):
        joined = [{n: np.concatenate([one[n] for one in its]) for n in its[0]}
                  for its in zip(*ranks, strict=True)]  # fmt: skip
        return [joined] * len(ranks)
    longest = max(ranks, key=len)  # a rank without a batch shows its weights at the end
    return [[*its[:-1], *longest[len(its) - 1 : -1], its[-1]] for its in ranks]


def look_at_start(case: Case, seen: Seen) -> None:
    """Do all ranks begin with rank 0's weights and buffers?"""
    if not all(its["steps"] for its in seen["ranks"]):
        raise says("idle")
    for rank, (its, weights) in enumerate(
        zip(seen["ranks"], trajectories(case, seen), strict=True)
    ):
        if any(not np.array_equal(one, case["weights"][name]) for name, one in weights[0].items()):
            raise says("broadcast", rank=rank)
        if its.get("buffers", []) not in ([], [case["weights"].get("scale", 0)]):
            raise says("buffers", rank=rank)
        if any(
            not np.array_equal(one, case["weights"][n]) for n, one in its.get("frozen", {}).items()
        ):
            raise says("frozen", rank=rank)
        if all(np.array_equal(one, weights[-1][name]) for name, one in weights[0].items()):
            raise says("none")


def whole(shares: Iterable[Any]) -> list[Any]:
    """The images and the labels of all these shares of a batch."""
    return [np.concatenate(one) for one in zip(*shares, strict=True)]


def look_at_examples(case: Case, seen: Seen) -> None:
    """Does each rank take its own share, in so many micro-batches?"""
    taken = [[rows(step) for step in its["examples"]] for its in seen["ranks"]]
    for rank, its in enumerate(taken):
        own = [rows(shares[rank][:1]) for shares in case["batches"]]
        for step, (found, right) in enumerate(zip(its, own, strict=False)):
            if sorted(found) == sorted(right) or not right:
                continue
            if "parts" in case and {*found} < {*right}:
                raise says("each part")
            if {*right} < {*found} <= {row for one in own for row in one}:
                raise says("unchanged", rank=rank, step=step)
            others = [one[step] for one in taken if one is not its and len(one) > step]
            if found and any(set(found) & set(other) for other in others):
                raise says("same")
            raise says("share", rank=rank, step=step)
        if "parts" in case:
            most = max(len(one) for step in seen["ranks"][rank]["examples"] for one in step)
            allowed = ceil(len(case["batches"][0][rank][1]) / case["parts"])
            if most > allowed:
                raise says("parts", most=most, allowed=allowed)
            if (held := seen["ranks"][rank].get("most_held", 0)) > 1:
                raise says("activations", held=held)


def rows(arrays: Iterable[Any]) -> list[bytes]:
    """The examples of several arrays, as what can be compared and sorted."""
    return [row.tobytes() for one in arrays for row in one]


# The gradients that updates have used.


def gradients(case: Case, weights: Arrays, x: Any, y: Any, loss: str = "") -> Arrays:
    """Of the mean loss over these examples, at these weights."""
    from labkit.exercises.truth import of_layers

    names = [name for name in case["weights"] if name.endswith("weight")]
    layers = TIED if case.get("tied") else [(name, f"{name[:-6]}bias") for name in names]
    chosen, errors = x[:, :1] > 1, list[Any]()

    def of_loss(logits: Any) -> Any:
        errors.append(error(logits + chosen * weights.get("expert", 0), labels=y, loss=loss))
        return errors[0]

    all_weights = {**case["weights"], **weights}
    found = of_layers(layers, all_weights, x, of_loss, case["program"] == "shard")
    return {**found, "expert": (chosen * errors[0]).sum(axis=0)}


def near(found: Arrays, wanted: Mapping[str, Any]) -> set[str]:
    """The names under which both have the same numbers, as float32 has them."""
    return {
        name for name, one in found.items()
        if np.allclose(one, wanted[name], rtol=2e-3, atol=1e-3 * abs(wanted[name]).max() + 3e-6)
    }  # fmt: skip


def closest(wanted: Any, found: list[Any]) -> Any:
    """Of each element, the one of these arrays that is nearest."""
    arrays = np.array(found)
    nearest = abs(arrays - wanted).argmin(axis=0)
    return np.take_along_axis(arrays, nearest[None], axis=0)[0]


def clipped(case: Case, found: Arrays, names: Iterable[str]) -> Arrays:
    """The gradients, multiplied so that the norm of all is at most the case's `clip`."""
    norm = summed(found[name] ** 2 for name in names) ** 0.5
    return {name: found[name] * min(1.0, case.get("clip", np.inf) / norm) for name in names}


def look_at_updates(case: Case, seen: Seen) -> None:
    """Compare the gradient that each update has used with that of one process."""
    found = trajectories(case, seen)
    for rank, weights in enumerate(found):
        if any(np.isnan(one).any() for step in weights for one in step.values()):
            raise says("early", rank=rank)
    last, before = [Arrays() for _ in found], list[Arrays]()  # subtracted by the last update
    for step in range(min(case["steps"], *(len(one) - 1 for one in found))):
        now = [{n: (one - at[step + 1][n]) / case["rate"] for n, one in at[step].items()}
               for at in found]  # fmt: skip
        used = [{n: one - case["momentum"] * old.get(n, 0) for n, one in its.items()}
                for its, old in zip(now, last, strict=True)]  # fmt: skip
        for rank in range(len(found)):
            parts = look_at_update(case, used, found[rank][step], before, rank=rank, step=step)
        last, before = now, parts
    for step in range(len(found[0])):
        for one in found[1:]:
            if any(not np.allclose(one[step][n], w, atol=1e-5) for n, w in found[0][step].items()):
                raise says("apart", step=step)
    more = [one for one in found[0][case["steps"] :] if near(one, found[0][-1]) != {*one}]
    if len(found[0]) - 1 < case["steps"] or more:
        raise says("few", found=len(found[0]) - 1, wanted=case["steps"])


def look_at_update(
    case: Case, used_by: list[Arrays], at: Arrays, before: list[Arrays], *, rank: int, step: int
) -> list[Arrays]:
    """The parts of the right gradient, by rank; or name the one that an update has used.

    `before` are the parts of the last step.
    """
    used, every, given = used_by[rank], set(used_by[rank]), case["batches"][step]
    ranks, sizes = len(given), np.array([len(y) for _, y in given])
    x, y = whole(given)
    each = [gradients(case, at, *one) for one in given]
    parts = [times(k, one) for k, one in zip(sizes / len(y), each, strict=True)]
    unclipped = added(parts)
    right = clipped(case, unclipped, used)
    good = near(used, right)
    if good == every:
        return parts
    if not any(one.any() for its in used_by for one in its.values()):
        raise says("none")
    if all(near({n: closest(right[n], [its[n] for its in used_by])}, right) for n in used):
        raise says("apart", step=step)
    factor = summed(used[n] * right[n] for n in used) / summed(right[n] ** 2 for n in used)
    known = dict.fromkeys([len(y), *sizes[sizes > 0]], "sum")
    known |= {ranks: "not divided", 1 / ranks: "twice", -1: "up"}
    keys = [key for one, key in known.items() if abs(factor / one - 1) < 0.01]
    wrong = [(keys[-1] if keys else "factor", times(factor, right))]
    mean = added(each)
    share = summed(used[n] * mean[n] for n in used) / summed(mean[n] ** 2 for n in used)
    wrong.append(("mean", times(share, mean)))
    wrong.append(("softmax", gradients(case, at, x, y, "twice")))
    if step:
        last, lost = added(before), -case["momentum"] or 0.9
        kept = ("zero", 1), ("zero", ranks), ("lost" if lost < 0 else "momentum", lost)
        wrong += [(key, added([right, times(one, last)])) for key, one in kept]
        others = [added([right, last, times(-1, one)]) for one in before]
        wrong += [("zero", {n: closest(used[n], [one[n] for one in others]) for n in used})]
    if "clip" in case:
        early = [clipped(case, one, used) for one in each]
        early = [times(k, one) for k, one in zip(sizes / len(y), early, strict=True)]
        wrong += [("clipped early", added(early))]
        wrong += [("clipped early", added([clipped(case, one, used) for one in parts]))]
        wrong += [("clipped apart", {n: clipped(case, unclipped, [n])[n] for n in used})]
        wrong += [("unclipped", unclipped), wrong.pop(0)]  # which is a multiple of `right`, too
    for key, one in wrong:
        if near(used, one) == every:
            raise says(key, factor=factor)
    factors = [1 / ranks, 1, *sizes / len(y), *ranks * sizes / len(y)]
    own = {n: closest(one, [k * g[n] for g in each for k in factors]) for n, one in used.items()}
    alone = near(own, used)
    names = ", ".join(sorted(every - good))
    if ranks > 1 and alone == every:
        raise says("local", rank=rank, step=step)
    if good and good | alone == every:
        raise says("bucket", names=names)
    if good and not any(abs(used[n]).max() for n in every - good):
        raise says("still", names=names)
    if good | near(used, times(ranks, right)) == every:
        raise says("tied", names=names)
    raise says("other", names=names, step=step)


def summed(arrays: Iterable[Any]) -> float:
    """The sum of all elements."""
    return sum(float(one.sum()) for one in arrays)


def added(each: list[Arrays]) -> Arrays:
    """The sum, name by name."""
    return {name: sum(one[name] for one in each) for name in each[0]}


def times(factor: float, arrays: Arrays) -> Arrays:
    """The arrays, multiplied."""
    return {name: factor * one for name, one in arrays.items()}


# Data-parallel training.


def network(random: Any, *, tied: bool = False, sizes: Iterable[int] = ()) -> Arrays:
    """Weights for the start, as float32."""
    if tied:
        names = [f"{one}.weight" for one in ("first", "frozen", "middle")]
        made = {name: random.normal(0, 0.5, (8, 8)) for name in names}
        made |= {"middle.bias": random.normal(0, 0.5, 8), "scale": np.array(1.0)}
    else:
        made = {}
        for number, (given, out) in enumerate(pairwise(sizes)):
            made[f"{2 * number}.weight"] = random.normal(0, (2 / given) ** 0.5, (out, given))
    return {name: one.astype("float32") for name, one in made.items()}


def shares(random: Any, ranks: int, *, steps: int = STEPS, width: int = 8, classes: int = 8) -> Any:
    """By step and rank, images and labels: rank 0 has 2, rank 1 has 4, and so on."""
    return [
        [(random.normal(size=(2 * rank + 2, width)).astype("float32"),
          random.integers(0, classes, 2 * rank + 2)) for rank in range(ranks)]
        for _ in range(steps)
    ]  # fmt: skip


def plain_sgd(ranks: int, **more: Any) -> Case:
    """What all cases have."""
    usual = {"program": "train", "rate": RATE, "momentum": 0.0, "steps": STEPS}
    return {**usual, "ranks": ranks, **more}


def torch_ddp(
    *, overlap: bool = False, most: int = 0, parts: int = 0, clip: float = 0.0,
    uneven: bool = False, unused: bool = False,
) -> Any:  # fmt: skip
    """The judge of my_training(model, batches), in which each rank has its share (x, y, total).

    With `parts` it gets that, too, and trains in so many micro-batches; with `clip` that norm. If
    `uneven`, one rank has a batch more than the others. If `unused`, the last rank alone uses one
    of the parameters, and in the last step no rank does.
    """
    settings = {"parts": parts} if parts else {"clip": clip} if clip else {}

    def cases(random: Any) -> list[Case]:
        more = {**settings, "more": [*settings.values()], "tied": True, "apart": True}
        found = []
        for n in (2, 1, 3, 4):
            weights, batches = network(random, tied=True), shares(random, n)
            for rank in {*range(n)} - {n // 2} if uneven else ():
                batches[-1][rank] = tuple(one[:0] for one in batches[-1][rank])
            found.append(plain_sgd(n, weights=weights, batches=batches, **more))
        for case in found if unused else ():
            case["weights"]["expert"] = random.normal(size=8).astype("float32")
            for step, given in enumerate(case["batches"]):
                for rank, (images, _) in enumerate(given, 1):
                    images[:, 0] = 2 if rank == len(given) and step < STEPS - 1 else -1
        return found

    def look(case: Case, seen: Seen) -> None:
        look_at_start(case, seen)
        look_at_examples(case, seen)
        look_at_updates(case, seen)
        if case["ranks"] > 1:
            look_at_traffic(case, seen["ranks"][0], overlap=overlap, most=most)

    return examined(look, cases)


def large_calls(its: Seen, nbytes: int = 1000) -> list[dict[str, Any]]:
    """The calls of a rank that give more bytes than a loss or a number of examples."""
    return [one for one in its["events"] if one["nbytes"] > nbytes]


def look_at_traffic(case: Case, its: Seen, *, overlap: bool, most: int) -> None:
    """Count what a step sends, and see whether it begins in time."""
    nbytes = sum(one.nbytes for one in its["end"].values())
    sums = [one for one in large_calls(its, 16) if "reduce" in one["what"]]
    sent, calls = sum(one["nbytes"] for one in sums) / case["steps"], len(sums) / case["steps"]
    if sent > 1.2 * nbytes:
        raise says("bytes", sent=sent / nbytes)
    if most and calls > most:
        raise says("calls", calls=calls, most=most)
    if overlap and not any(one["by_torch"] for one in sums):  # DDP has one bucket here
        if not any(one["in_backward"] for one in sums):
            raise says("late")
        if not any(one["overlaps"] for one in sums):
            raise says("blocks")


def whole_batches(random: Any, ranks: int, **more: Any) -> Case:
    """A small network with a ReLU, and global batches that all ranks get."""
    weights = network(random, sizes=(6, 8, 4))
    weights |= {"0.bias": random.normal(size=8), "2.bias": random.normal(size=4)}
    weights = {name: one.astype("float32") for name, one in weights.items()}
    images = random.normal(size=(STEPS, BATCH, 6)).astype("float32")
    labels = random.integers(0, 4, (STEPS, BATCH))
    shares = 1 if more.get("program") == "split" else ranks
    batches = [[(x[n::shares], y[n::shares]) for n in range(shares)]
               for x, y in zip(images, labels, strict=True)]  # fmt: skip
    given = {"arrays": [images, labels], "batches": batches, "rate": 0.5}
    return plain_sgd(ranks, weights=weights, **given, **more)


def torch_on_arrays(*, shards: bool = False, halves: bool = False) -> Any:
    """The judge of my_training(model, images, labels), with DDP, or FSDP2 on a mesh.

    Or, of `halves`, of my_step(rank, part, optimizer, x, y).
    """
    more = {"program": "split"} if halves else {"shards": True} if shards else {"apart": True}
    numbers = (2,) if halves else (2, 1, 4)

    def look(case: Case, seen: Seen) -> None:
        if not all(its.get("units", True) for its in seen["ranks"]):
            raise says("units")
        look_at_start(case, seen)
        if not halves:
            look_at_examples(case, seen)
        look_at_updates(case, seen)

    return examined(look, lambda random: [whole_batches(random, n, **more) for n in numbers])


def torch_sampler() -> Any:
    """The judge of my_training(model, dataset, epochs, batch_size): each rank samples its share."""
    size, epochs = 4, 3

    def cases(random: Any) -> list[Case]:
        found = []
        for ranks, examples in ((2, 22), (3, 23), (1, 10)):
            images = random.normal(size=(examples, 6)).astype("float32")
            data = images, random.integers(0, 4, examples)
            steps, weights = (
                epochs * ceil(ceil(examples / ranks) / size),
                network(random, sizes=(6, 8, 4)),
            )
            more = {"dataset": data, "more": [epochs, size], "steps": steps, "apart": True}
            found.append(plain_sgd(ranks, weights=weights, **more))
        return found

    def look(case: Case, seen: Seen) -> None:
        look_at_start(case, seen)
        taken = [its["examples"] for its in seen["ranks"]]  # by rank and step
        most = max(len(one) for its in taken for step in its for one in step)
        if most != size:
            raise says("batch", most=most, size=size)
        look_at_epochs(case, taken)
        known = {row.tobytes(): label for row, label in zip(*case["dataset"], strict=True)}
        batches = [[(np.concatenate(one), np.array([known[row] for row in rows(one)]))
                    for one in step] for step in zip(*taken, strict=False)]  # fmt: skip
        look_at_updates({**case, "batches": batches}, seen)

    def look_at_epochs(case: Case, taken: list[Any]) -> None:
        every, steps, orders = set(rows(case["dataset"][:1])), case["steps"] // epochs, []
        for epoch in range(epochs):
            now = slice(epoch * steps, (epoch + 1) * steps)
            each = [[row for step in its[now] for row in rows(step)] for its in taken]
            found = {row for its in each for row in its}
            if len(each) > 1 and len(found) <= len(set(each[0])):
                raise says("same")
            if missed := len(every - found):
                raise says("missed", count=missed, epoch=epoch)
            orders.append(each[0])
        if orders[0] in orders[1:]:
            raise says("epoch")

    return examined(look, cases)


def torch_metrics() -> Any:
    """The judge of my_metrics(model, batches): mean loss and accuracy over all ranks' examples."""

    def cases(random: Any) -> list[Case]:
        weights = network(random, sizes=(8, 8, 8))
        return [plain_sgd(n, weights=weights, batches=shares(random, n)) for n in (2, 1, 3, 4)]

    def look(case: Case, seen: Seen) -> None:
        first, last = case["weights"].values()
        totals = []  # of each rank: loss and hits of all its examples, and how many these are
        for rank in range(case["ranks"]):
            mine = zip(*(step[rank] for step in case["batches"]), strict=True)
            images, labels = map(np.concatenate, mine)
            logits = np.maximum(images @ first.T, 0) @ last.T
            losses = -np.log(softmax(logits)[np.arange(len(labels)), labels])
            totals.append([losses.sum(), (logits.argmax(1) == labels).sum(), len(labels)])
        table = np.array(totals)
        right, own = (table.sum(axis=0) / table[:, 2].sum())[:2], table[:, :2] / table[:, 2:]
        for rank, its in enumerate(seen["ranks"]):
            try:
                found = np.array(its["returned"], float).reshape(2)
            except (TypeError, ValueError):
                text: dict[str, Any] = {"found": repr(its["returned"]), "wanted": "loss, accuracy"}
                raise says("returned", rank=rank, **text) from None
            for key, wanted in (("", right), ("mean", own.mean(axis=0)), ("own", own[rank])):
                if np.allclose(found, wanted, atol=1e-4):
                    if key:
                        raise says(key, rank=rank)
                    break
            else:
                text = {"found": found.round(4).tolist(), "wanted": right.round(4).tolist()}
                raise says("returned", rank=rank, **text)

    return examined(look, cases)


# What each rank holds.


def layer_case(random: Any, ranks: int, **more: Any) -> Case:
    """The network whose bytes are counted."""
    weights = network(random, sizes=[WIDTH] * (LAYERS + 1))
    batches = shares(random, ranks, steps=more.get("steps", STEPS), width=WIDTH, classes=WIDTH)
    return plain_sgd(ranks, weights=weights, batches=batches, **more)


def torch_zero_1(*, flat: bool = False) -> Any:
    """The judge of my_training(model, batches, make_optimizer): ZeRO-1.

    With `flat` a step has one reduce-scatter and one all-gather, and shares are equal.

    Updates are looked at with SGD and a momentum, bytes with AdamW on 4 ranks: on 2, a flat shard
    with its gradient and state is as large as a state that is not cut.
    """
    sgd = {"optimizer": "SGD", "settings": {"lr": RATE, "momentum": MOMENTUM}}
    adam = {"optimizer": "AdamW", "settings": {"lr": 0.01, "weight_decay": 0.1}}

    def cases(random: Any) -> list[Case]:
        found = [layer_case(random, n, momentum=MOMENTUM, **sgd) for n in (2, 3, 1)]
        return [*found, layer_case(random, 4, **adam)]

    def look(case: Case, seen: Seen) -> None:
        ranks, moments = case["ranks"], 1 if case["optimizer"] == "SGD" else 2
        look_at_start(case, seen)
        look_at_examples(case, seen)
        if case["optimizer"] == "SGD":
            look_at_updates(case, seen)
        for rank, its in enumerate(seen["ranks"]):
            # A layer is the most by which shares of whole layers differ.
            share = moments * (1 / ranks if flat else ceil(LAYERS / ranks) / LAYERS)
            if its["state"] > 1.05 * share * MODEL:
                raise says("state", rank=rank, held=its["state"] / MODEL, share=share)
        if ranks > 1:  # DistributedDataParallel has a bucket beside the gradients; shards need less
            look_at_bytes(seen, held=3 + (moments * ceil(LAYERS / ranks) + 1.5) / LAYERS)
        if flat and ranks > 1:
            look_at_halves(seen["ranks"][0], case["steps"])

    return examined(look, cases)


def look_at_halves(its: Seen, steps: int) -> None:
    """Does a step reduce-scatter its gradients, and all-gather the weights, in one call each?"""
    calls = [one["what"] for one in large_calls(its)]
    if {"all_reduce", "reduce"} & {*calls}:
        raise says("whole gradients")
    if len(calls) > 2 * steps + 2:  # two of the start are forgiven
        raise says("calls", calls=len(calls) / steps, most=2)


def look_at_bytes(
    seen: Seen, *, held: float, peak: float = 0.0, key: str = "held", **more: Any
) -> None:
    """Bytes between steps, and at the peak of the last step, in models."""
    for rank, its in enumerate(seen["ranks"]):
        for when, most, nbytes in zip(WHEN, (held, peak), its["marks"][-1], strict=True):
            if most and nbytes > 1.03 * most * MODEL:
                raise says(key, rank=rank, when=when, held=nbytes / MODEL, share=most, **more)


def torch_fsdp() -> Any:
    """The judge of my_training(weights, batches): all is cut, and rank 0 returns whole weights.

    One step shows the gradient that it has used; two, what is left over from the others.
    """

    def cases(random: Any) -> list[Case]:
        steps = (2, 1), (3, 1), (4, 2), (1, 1)
        return [layer_case(random, n, steps=k, program="shard") for n, k in steps]

    def look(case: Case, seen: Seen) -> None:
        ranks, found = case["ranks"], seen["ranks"][0]["returned"]
        values = [*found.values()] if isinstance(found, Mapping) else found
        if [getattr(one, "size", 0) for one in values or ()] != [WIDTH**2] * LAYERS:
            text = {"found": f"a {type(found).__name__}", "wanted": "the list of the whole weights"}
            raise says("returned", rank=0, **text)
        at, end = case["weights"], dict(zip(case["weights"], values, strict=True))
        end = {name: np.reshape(one, (WIDTH, WIDTH)) for name, one in end.items()}
        if case["steps"] == 1:
            updates = {"ranks": [{"steps": [at], "end": end}] * ranks}
            look_at_updates(case, updates)
        for shares in case["batches"]:
            at = added([at, times(-RATE, gradients(case, at, *whole(shares)))])
        if len(near(end, at)) < LAYERS:
            raise says("later")
        share, calls = 2 / ranks + 0.1, large_calls(seen["ranks"][0])
        gathers = [one["nbytes"] for one in calls if one["what"] == "all_gather"]
        size = max(gathers, default=0) * ranks * LAYERS / MODEL  # of a unit, in layers
        key = "one unit" if size > LAYERS / 2 else "gathered" if gathers else "held"
        look_at_bytes(seen, held=share, peak=share + 4.2 / LAYERS, key=key, layers=size)
        if ranks > 1 and any(one["what"] == "all_reduce" for one in calls):
            raise says("whole gradients")

    return examined(look, cases)
