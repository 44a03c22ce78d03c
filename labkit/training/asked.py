"""What may be asked of a job, checked before TensorFlow sees it."""

from __future__ import annotations

from numbers import Real
from typing import Any

from labkit.kinds import LabError

__all__ = ["images_for", "share", "whole"]


def whole(what: str, value: Any, least: int, example: int) -> int:
    """A whole number from `least` on; NumPy's count too.

    >>> whole("batch", 32, 1, 32)
    32
    """
    number = None if isinstance(value, bool) else getattr(value, "__index__", None)
    if number is None or number() < least:
        raise LabError(
            f"{what}={value!r} is not a whole number from {least} on. Try {what}={example}."
        )
    return int(number())


def share(what: str, value: Any, example: float) -> float:
    """A number from 0 on and below 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise LabError(f"{what}={value!r} is not a share from 0 to below 1. Try {what}={example}.")
    return float(value)


def images_for(asked: Any, there: int, global_batch: int) -> int:
    """How many of the training images a job takes."""
    count = there if asked is None else whole("images", asked, 1, there)
    if count > there:
        raise LabError(
            f"This data set has {there:,} training images; images={count:,} is more. "
            f"Take {there:,} or fewer."
        )
    if count < global_batch:
        raise LabError(
            f"A global batch of {global_batch} needs at least as many images; there are {count:,}. "
            "Take a smaller batch or more images."
        )
    return count
