"""Whether the numbers that a run has left are those that numpy finds, as far as the dtype can tell.

A sum of floating-point numbers depends a little on its order, and every order is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.collectives.operations import OPERATIONS
from labkit.collectives.promises import Piece
from labkit.collectives.provenance import Array, precision

__all__ = ["Numbers", "number"]


class Numbers:
    """What numpy makes of the ranks' buffers, and how far from it a result may be."""

    def __init__(self, op: str, inputs: list[Array]) -> None:
        self.inputs = inputs
        self.op = op
        with np.errstate(all="ignore"):
            self.total = inputs[0] if op == "copy" else _total(op, inputs)
            self.bound, self.open = (None, None) if op == "copy" else _slack(op, inputs, self.total)

    @property
    def open_anywhere(self) -> bool:
        """Whether there are elements in which no number would be wrong."""
        return self.open is not None and bool(self.open.any())

    def wanted(self, piece: Piece) -> Array:
        """What must be in a piece: another rank's elements, or the reduction of all."""
        if piece.owner is None:
            return self.total[piece.start : piece.stop]
        return self.inputs[piece.owner][piece.begin : piece.begin + piece.stop - piece.start]

    def off(self, output: Array, piece: Piece) -> Array:
        """Which elements of a piece hold a number that they must not hold."""
        part = slice(piece.start, piece.stop)
        actual, expected = output[part], self.wanted(piece)
        with np.errstate(all="ignore"):
            same = (actual == expected) | ((actual != actual) & (expected != expected))
            if piece.owner is None and self.bound is not None and self.open is not None:
                same |= np.abs(_wide(actual) - _wide(expected)) <= self.bound[part]
                same |= self.open[part]
        return np.asarray(~same)


def _wide(numbers: Array) -> Array:
    """In more digits than the programs have, where there are any."""
    if numbers.dtype.kind == "V":  # bfloat16 and its kind
        numbers = numbers.astype(np.float64)
    return numbers.astype(np.clongdouble if numbers.dtype.kind == "c" else np.longdouble)


def _total(op: str, inputs: list[Array]) -> Array:
    parts = inputs
    if op not in ("max", "min") and inputs[0].dtype.kind in "fcV":
        parts = [_wide(part) for part in inputs]
    total = parts[0].copy()
    for part in parts[1:]:
        OPERATIONS[op](total, part, out=total)
    return np.asarray(total / len(parts)) if op == "mean" else total


def _slack(op: str, inputs: list[Array], total: Array) -> tuple[Array | None, Array | None]:
    """How far from the total every element may be, and where anything may come out."""
    kind = inputs[0].dtype.kind
    if op in ("max", "min"):
        # Of nothing and a number numpy makes nothing, and other libraries the number.
        return np.zeros(total.shape), np.any([part != part for part in inputs], axis=0)
    if kind in "iu" and op == "mean":
        return np.full(total.shape, 0.999), np.zeros(total.shape, dtype=bool)  # rounded either way
    if kind not in "fcV":
        return None, None
    sizes = [np.abs(_wide(part)) for part in inputs]
    finite = np.all([np.isfinite(size) for size in sizes], axis=0)
    digits, power = precision(inputs[0].dtype)
    rough = 2.0**-digits * (len(inputs) + 1) * (4 if kind == "c" else 2)
    if op == "prod":
        bound = rough * np.abs(total)
        powers = np.sum(np.abs(np.log2(np.where(np.array(sizes) > 0, sizes, 1))), axis=0)
        disordered = powers >= power - 1  # a part may overflow, or vanish, in another order
    else:
        bound = rough * np.sum(sizes, axis=0) / (len(inputs) if op == "mean" else 1)
        disordered = np.sum(sizes, axis=0) >= 2.0**power
    return np.asarray(bound), np.asarray(disordered & finite)


def number(value: Any) -> str:
    """A number in a sentence."""
    kind = np.asarray(value).dtype.kind
    if kind in "biu":
        return str(value.item())
    if kind not in "fcV":
        return str(value)
    return f"{complex(value):.6g}" if kind == "c" else f"{float(value):.12g}"
