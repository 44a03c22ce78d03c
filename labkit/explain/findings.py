"""From the watched run and the measured gains to what is said."""

from __future__ import annotations

import math
from typing import Any

from labkit.explain.candidates import Candidate
from labkit.explain.causes import CAUSES
from labkit.explain.explanation import (
    ATTRIBUTED,
    MEASURED_FIX,
    MEASURED_REMOVAL,
    Expected,
    Looked,
    Reason,
)
from labkit.explain.removals import Gain, gain
from labkit.explain.seen import Seen

SPECIFIC = ("text_format", "python_loop_input", "python_input", "rank_0_reads")
NOT_ALONE = ("communication",)  # the limit of a program that does it well, not a fault
# The step needs what was left out: it is part of the model, or the option is there for a reason.
NEEDED = (
    "through the graph a second time",
    "does not require grad",
    "No gradients provided",
    "not used in producing loss",
)


def expected(one: Candidate) -> Expected | None:
    """What the change will bring: measured itself, or between some of it left and nothing left."""
    found = gain(one.logs)
    if found is None:
        return None
    low, value = found.low, found.value
    if not one.fix:
        low, value = _kept(low, one.kept), _kept(value, one.kept / 2)
    return Expected(round(low, 3), round(value, 3), round(found.high, 3), found.pairs)


def _kept(times: float, share: float) -> float:
    """How many times as fast, if this share of what was left out stays.

    >>> _kept(2.0, 0.2)
    1.6666666666666667
    """
    return 1 / (1 / times + share * (1 - 1 / times)) if times > 1 else times


def causes(found: list[Candidate]) -> tuple[list[Reason], list[Looked], list[Candidate]]:
    """The findings by gain, what else was measured, and what stayed open."""
    results = {id(one): gain(one.logs) for one in found if not one.failed}
    sure = [one for one in found if _sure(one, results.get(id(one)))]
    for group in ("input", "comm"):
        sure = _explained(sure, group)
    sure = _same_lines(sure)
    alone = [one for one in sure if one.key not in NOT_ALONE]
    alone.sort(key=lambda one: (one.key == "small_batch", -_saving(one)))
    findings = [_finding(one) for one in alone]
    known = bool(findings)
    for one in found:
        if one not in alone and _unmeasured(one) and not (one.key == "uneven" and known):
            findings.append(_attributed(one, one.share))
            alone.append(one)
    told = {id(one) for one in alone}
    rest = [
        Looked(one.says, expected(one), one.failed or _few(one))
        for one in found
        if id(one) not in told
    ]
    open_ = [one for one in found if _open(one, results.get(id(one))) and id(one) not in told]
    return findings, rest, open_


def _unmeasured(one: Candidate) -> bool:
    """Could it not be measured, or not often enough, and do many samples fall into it?"""
    if any(word in one.failed for word in NEEDED) or one.share < 0.15:
        return False
    few = 0 < len(one.logs) < 3 and min(one.logs) > 0.05
    return bool(one.failed) or few


def _few(one: Candidate) -> str:
    return "" if len(one.logs) > 2 else "too few runs for an interval"


def _sure(one: Candidate, result: Gain | None) -> bool:
    if result is None:
        return False
    least = 1.25 if one.key == "small_batch" else max(1.02, min(1.5, 1 + 0.25 * (result.value - 1)))
    return result.value >= one.limit and result.low > least


def _open(one: Candidate, result: Gain | None) -> bool:
    """Could it still be a cause?"""
    if one.key in NOT_ALONE:
        return False
    if one.failed:
        return not any(word in one.failed for word in NEEDED)
    if result is None:
        return bool(one.logs) and math.exp(max(one.logs)) > one.limit
    wide = result.high > max(one.limit, 1.5 * result.low)  # 0.5 to 1.4 is no answer
    return (wide or result.value >= one.limit) and not _sure(one, result)


def _saving(one: Candidate) -> float:
    result = gain(one.logs)
    return 1 - 1 / result.value if result else 0.0


def _explained(sure: list[Candidate], group: str) -> list[Candidate]:
    """A fix that brings much of a removal takes its place; of several fixes the best stays."""
    mine = [one for one in sure if one.group == group]
    fixes = [one for one in mine if one.fix]
    if not fixes:
        return sure
    best = max(fixes, key=_saving)
    starts = [
        one for one in fixes if one.key == "workers_start" and _saving(one) > 0.5 * _saving(best)
    ]
    best = (starts or [best])[0]
    drop = [one for one in fixes if one is not best]
    for one in mine:
        if one.fix:
            continue
        result = expected(best)
        if one.key in SPECIFIC:
            drop.append(best)
            one.evidence += f"; {CAUSES[best.key].change.format_map(best.values)} alone: {result}"
        elif _saving(best) > 0.35 * _saving(one):
            drop.append(one)
            best.evidence += f"; without all of it {expected(one)}"
    return [one for one in sure if all(one is not gone for gone in drop)]


def _same_lines(sure: list[Candidate]) -> list[Candidate]:
    """Of two candidates for one line of the user's, the one that saves more."""
    kept: list[Candidate] = []
    for one in sorted(sure, key=lambda c: (not c.fix, -_saving(c))):
        if not any(one.line and one.line == other.line and one.key == other.key for other in kept):
            kept.append(one)
    return kept


def _finding(one: Candidate) -> Reason:
    cause = CAUSES[one.key]
    kind = MEASURED_FIX if one.fix else MEASURED_REMOVAL
    return Reason(
        one.key, kind, one.says, expected(one), one.evidence, one.line, one.words(cause.change),
        cause.lecture,
    )  # fmt: skip


def _attributed(one: Candidate, share: float) -> Reason:
    cause = CAUSES[one.key]
    gone = 1 / (1 - min(share, 0.98))
    bound = Expected(
        round(_kept(gone, 2 * one.kept), 3), round(_kept(gone, one.kept), 3), round(gone, 3)
    )
    why = f"{one.evidence}; not measured: {one.failed or 'too few runs for an interval'}"
    return Reason(
        one.key, ATTRIBUTED, one.says, bound, why, one.line, one.words(cause.change), cause.lecture
    )


# ---- what is computed wrongly --------------------------------------------------------------------


def wrong(seen: Seen) -> list[Reason]:
    """Faults that the watched run itself shows."""
    found = [*_data(seen), *_weights(seen), *_scale(seen), *_order(seen)]
    return [Reason(key, "correctness", cause, None, evidence, line, change, lecture)
            for key, cause, evidence, line, change, lecture in found]  # fmt: skip


Fault = tuple[str, str, str, str, str, str]


def _data(seen: Seen) -> list[Fault]:
    if seen.world < 2:
        return []
    for source, words in (("batches", "batches of the loader"), ("inputs", "inputs of the model")):
        lists = [[str(one) for one in rank[source]] for rank in seen.ranks]
        count = min(map(len, lists))
        same = all(rank[:count] == lists[0][:count] for rank in lists)
        sums = {one[-1] if isinstance(one, list) else one for one in seen.lead[source][:count]}
        if count >= 4 and same and len(sums) > 1:
            line = seen.site(seen.note("loader") or "", "ddp", "backward")
            return [(
                "same_data", "every rank trains on the same data",
                f"{count} of {count} {words} are equal on all {seen.world} ranks", line,
                "DistributedSampler, or another seed for the data of each rank", "51",
            )]  # fmt: skip
    return []


def _weights(seen: Seen) -> list[Fault]:
    rows = [rank["weights"] for rank in seen.ranks]
    for step in sorted(set.intersection(*(set(row) for row in rows)), key=int) if rows else ():
        sums = [row[step] for row in rows]
        if len({len(one) for one in sums}) > 1:
            continue
        apart = [
            abs(a - b) / max(abs(a), 1e-9)
            for other in sums[1:]
            for a, b in zip(sums[0], other, strict=True)
        ]
        if max(apart, default=0.0) > 1e-5:
            which = sum(one > 1e-5 for one in apart)
            return [(
                "weights_differ", "the weights differ between the ranks",
                f"after step {step} the sums of {which} of {len(apart)} parameters differ",
                seen.site("dist.all_reduce", "dist.broadcast", "backward"),
                "broadcast all weights from rank 0 at the start, and reduce every gradient (DDP "
                "does both)", "50",
            )]  # fmt: skip
    return []


def _scale(seen: Seen) -> list[Fault]:
    loss: dict[str, Any] = seen.note("loss") or {}
    line = seen.site("backward", "loss")
    counts = seen.note("backwards") or []
    micro = sorted(counts)[len(counts) // 2] if counts else 1
    if seen.torch and micro > 1 and loss.get("mean") and abs(loss["factor"] - 1) < 1e-6:
        return [(
            "loss_scale", "the loss is scaled by the wrong batch: micro-batches add up",
            f"{micro} backward passes for each update, and the loss of each is the mean of its own "
            "micro-batch: the gradient is that many times too large", line,
            f"(loss / {micro}).backward()", "51",
        )]  # fmt: skip
    replicas = loss.get("replicas", 1)
    if not seen.torch and replicas > 1 and loss.get("mean"):
        return [(
            "loss_scale", "the loss is scaled by the wrong batch: each replica divides by its own",
            f"the loss of each of {replicas} replicas is the mean of its own examples, and the "
            "gradients of all replicas are added", line,
            "tf.nn.compute_average_loss(per_example, global_batch_size=…)", "12",
        )]  # fmt: skip
    return []


def _order(seen: Seen) -> list[Fault]:
    epochs = seen.note("sampler epochs") or []
    if len(epochs) < 2 or len(set(epochs)) > 1:
        return []
    return [(
        "no_set_epoch", "every epoch has the same order: set_epoch is not called",
        f"{len(epochs)} epochs with sampler.epoch = {epochs[0]}", seen.site("sampler"),
        "sampler.set_epoch(epoch) at the start of each epoch", "51",
    )]  # fmt: skip
