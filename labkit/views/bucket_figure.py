"""Backward pass and all-reduces of its gradients, over time: what is hidden, what is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.kinds import seconds_text
from labkit.views.figure import OKABE_ITO, Picture, style
from labkit.views.sketch import WIDTH, Sketch

__all__ = ["buckets_board", "figure"]

_LEFT, _TOP, _PITCH, _LANE = 104.0, 92.0, 112.0, 30.0
_BACKWARD, _REDUCE = 0, 2


def figure(plans: Mapping[str, Any]) -> Picture:
    """Schedules below each other on one axis of time, each under its name."""
    with style():
        board = buckets_board(plans)
    said = "; ".join(
        f"{name or 'this schedule'}: {len(plan.buckets)} all-reduces, "
        f"{seconds_text(plan.seconds)} in all, {seconds_text(plan.exposed)} of it after the "
        "backward pass"
        for name, plan in plans.items()
    )
    return board.picture(f"Backward pass and all-reduces over time. {said}.")


def buckets_board(plans: Mapping[str, Any]) -> Sketch:
    """The drawing of `figure`."""
    first = next(iter(plans.values()))
    longest = max(plan.seconds for plan in plans.values())
    board = Sketch(
        "Gradients leave while the backward pass runs",
        _TOP + _PITCH * len(plans),
        "The backward pass works on the last layer first. What it has finished can travel.",
        kind=first.kind,
    )
    scale = (WIDTH - _LEFT - 98) / longest
    for row, (name, plan) in enumerate(plans.items()):
        _row(board, _TOP + _PITCH * row, scale, name, plan)
    return board


def _row(board: Sketch, y: float, scale: float, name: str, plan: Any) -> None:
    board.text(24, y, name, bold=True, size=9.5)
    above, below = y + 14, y + 18 + _LANE
    board.text(24, above + _LANE / 2, "backward", size=9)
    board.text(24, below + _LANE / 2, "all-reduce", size=9)
    layers = len(plan.backward)
    for place, (start, end) in enumerate(plan.backward):
        wide = (end - start) * scale
        word = str(layers - place) if wide >= 18 else ""
        board.box(
            _LEFT + start * scale, above, wide, _LANE, word,
            series=_BACKWARD, size=8.5, corner=min(1.5, wide / 4),
        )  # fmt: skip
    words = _carried(plan, scale)
    for bucket, word in zip(plan.buckets, words, strict=True):
        wide = (bucket.end - bucket.start) * scale
        board.box(
            _LEFT + bucket.start * scale, below, wide, _LANE, word,
            series=_REDUCE, hatch=True, size=8.5, corner=min(1.5, wide / 4),
        )  # fmt: skip
    done = _LEFT + plan.backward[-1][1] * scale
    # Not over the lower lane: it has words.
    board.line((done, above - 7), (done, below), above=True)
    board.line((done, below + _LANE), (done, below + _LANE + 7), above=True)
    end = _LEFT + plan.seconds * scale
    board.text(end + 10, below + _LANE / 2, seconds_text(plan.seconds), size=9.5, bold=True)
    if plan.exposed > 0:
        board.text(
            done + 10, above + _LANE / 2, f"{seconds_text(plan.exposed)} more", size=9,
            color=OKABE_ITO["vermillion"],
        )  # fmt: skip


def _carried(plan: Any, scale: float) -> list[str]:
    """The layers of each bucket, by their numbers in the model, as long as all of them fit."""
    layers = len(plan.backward)
    ends = [(layers - bucket.first, layers - bucket.last) for bucket in plan.buckets]
    short = [str(high) if high == low else f"{high}–{low}" for high, low in ends]
    widths = [(bucket.end - bucket.start) * scale for bucket in plan.buckets]
    for words in ([f"layers {word}" for word in short], short):
        if all(7.6 * len(word) + 8 <= wide for word, wide in zip(words, widths, strict=True)):
            return words
    return [""] * len(short)
