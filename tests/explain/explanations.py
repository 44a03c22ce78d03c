"""Explanations of programs that never ran, for tests of what is drawn and written."""

from dataclasses import replace

from labkit.explain.causes import CAUSES, PARTS
from labkit.explain.explanation import (
    MEASURED_FIX,
    Expected,
    Explanation,
    Looked,
    Predicted,
    RankParts,
    Reason,
)
from labkit.kinds import measured

HERE = measured("a machine of the test, 2 cores")
PLAIN = Explanation(
    HERE, ["python", "train.py"], 0, 12.0, 0.0, 0, [], "cannot tell: it took no step", [], [], [],
    "", 0.0,
)  # fmt: skip


def reason(key, *ends):
    cause = CAUSES[key]
    gain = Expected(*ends) if ends else None
    return Reason(key, MEASURED_FIX, cause.says, gain, "seen <here>", "train.py:7", cause.change,
                  cause.lecture)  # fmt: skip


def rank(parts, steps=14, long=0.1):
    """A rank that is in each of these parts for as long in each step, with an evaluation inside."""
    spans = []
    for step in range(steps):
        piece = long / len(parts)
        spans += [(part, step * long + at * piece, piece) for at, part in enumerate(parts)]
    return RankParts(
        {part: long / len(parts) for part in parts}, [n * long for n in range(steps)], spans
    )


def full():
    """Two ranks, all parts, findings with and without gains, and a prediction."""
    return replace(
        PLAIN,
        step=0.1,
        steps=140,
        ranks=[rank([*PARTS]), rank([*PARTS][:9])],
        verdict=CAUSES["checkpoints"].says,
        findings=[reason("uneven"), reason("checkpoints", 1.2, 1.4, 1.6),
                  reason("no_sync", 0.9, 2.0, 480.0)],
        looked_for=[Looked(CAUSES["text_format"].says, Expected(0.6, 0.98, 1.1)),
                    Looked(CAUSES["input"].says, None, "it had not ended after 30 s")],
        limit="Its time: forward 30 %.",
        overhead=0.012,
        prediction=[Predicted(1, 0.05, 0.06), Predicted(2, 0.1, 0.1), Predicted(4, 0.12, 0.13),
                    Predicted(8, 0.13, 0.15)],
        notes=["other programs took 1.2 cores meanwhile"],
        measured_for=50.0,
    )  # fmt: skip
