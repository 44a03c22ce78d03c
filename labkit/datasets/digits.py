"""Handwritten digits drawn by labkit: what stands in for MNIST where there is no internet.

Each digit is a few smooth strokes through key points. A writer moves the key points, and has a
width, a slant and a pen of their own; every image moves, turns and bends the writer's digit once
more. Training and test images come from different writers, as in MNIST.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from labkit.datasets.draws import Draws, box_gap, grid_sample, spread
from labkit.progress import unseen

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["draw_digits"]

SIDE = 28
WRITERS = 250
CHUNK = 500
FIELD = 44  # points across a distance field: one is about two thirds of a pixel
REACH = 0.75  # how far a field reaches from the middle, in heights of a digit

# Two or three ways to write each digit, 0 to 9. A way is strokes apart by "/", a stroke is key
# points "x,y" in a box of 100 by 100, y downwards.
WAYS = (
    (
        "50,0 18,20 10,55 30,95 62,97 88,60 80,20 50,0",
        "60,2 20,15 8,60 40,100 85,75 90,30 50,4 30,10",
    ),
    (
        "50,0 50,50 50,100",
        "28,24 54,0 / 54,0 52,50 50,100",
        "30,20 52,0 / 52,0 50,100 / 22,100 80,98",
    ),
    (
        "12,25 40,0 80,20 68,50 10,100 / 10,100 50,97 92,98",
        "15,20 50,0 80,24 60,60 20,98 8,84 30,78 95,98",
    ),
    (
        "15,12 50,0 80,22 38,48 / 38,48 86,70 55,100 10,88",
        "15,3 82,2 / 82,2 45,40 / 45,40 86,66 50,100 10,90",
    ),
    (
        "20,2 10,50 50,58 88,52 / 80,0 72,50 68,100",
        "66,0 10,64 / 10,64 94,60 / 66,0 62,100",
        "25,5 18,45 / 18,45 80,42 / 82,2 72,100",
    ),
    (
        "88,2 25,3 / 25,3 20,42 / 20,42 82,58 50,100 8,90",
        "90,0 40,5 22,38 70,52 75,85 40,100 8,90",
    ),
    (
        "70,0 30,30 14,70 45,100 80,80 60,54 20,72",
        "50,0 20,40 18,85 55,100 85,75 55,50 18,68",
    ),
    (
        "10,6 50,3 88,4 / 88,4 55,50 40,100",
        "10,5 90,2 / 90,2 40,100 / 30,52 80,48",
        "12,20 14,5 / 14,5 86,6 / 86,6 68,40 55,100",
    ),
    (
        "78,15 45,0 22,22 70,68 50,100 20,78 72,30 78,15",
        "50,0 20,22 50,46 78,22 50,0 / 50,46 14,74 50,100 84,74 50,46",
    ),
    (
        "80,22 50,1 20,28 45,50 80,22 / 80,20 74,60 66,100",
        "82,20 45,0 20,30 50,50 82,20 / 82,20 80,70 55,100 20,92",
    ),
)

Stroke = tuple[tuple[float, float], ...]


def draw_digits(
    count: int, seed: int, split: int, advance: Callable[[int], None] = unseen
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (count, 28, 28) and labels (count,). Another split has other writers.

    `advance` is told how many images are done.
    """
    import numpy as np

    labels = Draws(seed, split, 0).labels(count, 10)
    hands = Draws(seed, split, 1)
    fields = _fields(hands)
    slants = hands.bell(WRITERS, wide=0.15)
    pens = hands.uniform(WRITERS, low=0.7, high=1.8)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        draws = Draws(seed, split, 2, start)
        images[start:stop] = _written(labels[start:stop], fields, slants, pens, draws)
        advance(stop)
    return images, labels


def _fields(hands: Draws) -> NDArray[np.float32]:
    """For every writer and digit, how far each place is from the ink."""
    import numpy as np

    axis = (np.arange(FIELD, dtype=np.float32) * np.float32(2 / (FIELD - 1)) - 1) * np.float32(
        REACH
    )
    x, y = np.broadcast_to(axis, (FIELD, FIELD)), np.broadcast_to(axis[:, None], (FIELD, FIELD))
    fields = np.empty((WRITERS, 10, FIELD, FIELD), np.float32)
    for digit, ways in enumerate(WAYS):
        chosen = hands.pick(WRITERS, len(ways))
        for number, way in enumerate(ways):
            writers = np.flatnonzero(chosen == number)
            if not len(writers):
                continue
            width = hands.uniform(len(writers), low=0.5, high=0.85)
            segments = []
            for stroke in _strokes(way):
                segments += _curve(stroke, len(writers), width, hands)
            fields[writers, digit] = box_gap(np.stack(segments, axis=1), x, y)
    return fields.reshape(WRITERS * 10, FIELD, FIELD)


def _strokes(way: str) -> list[Stroke]:
    """The key points of a way of writing, in a box of one by one around the middle."""
    return [
        tuple(
            (int(x) / 100 - 0.5, int(y) / 100 - 0.5)
            for x, y in (point.split(",") for point in stroke.split())
        )
        for stroke in way.split("/")
    ]


def _curve(
    stroke: Stroke, writers: int, width: NDArray[np.float32], hands: Draws
) -> list[NDArray[np.float32]]:
    """A smooth curve through the key points as each writer places them, in short segments."""
    import numpy as np

    key = np.asarray(stroke, np.float32)[None]
    key = key + hands.bell(writers, len(stroke), 2, wide=0.07)
    key[:, :, 0] *= width[:, None]
    steps = 1 if len(stroke) == 2 else 4
    last, closed = len(stroke) - 1, stroke[0] == stroke[-1]
    places = []
    for i in range(last):
        here, there = key[:, i], key[:, i + 1]
        before = key[:, i - 1] if i else key[:, last - 1 if closed else 0]
        after = key[:, i + 2] if i + 1 < last else key[:, 1 if closed else last]
        for step in range(steps):
            t = np.float32(step / steps)
            # Catmull-Rom: a cubic that passes through every key point.
            places.append(
                here
                + (there - before) * (t / 2)
                + (before * 2 - here * 5 + there * 4 - after) * (t * t / 2)
                + (here * 3 - before - there * 3 + after) * (t * t * t / 2)
            )
    places.append(key[:, -1])
    return [np.concatenate(pair, axis=1) for pair in pairwise(places)]


def _written(
    labels: NDArray[np.uint8],
    fields: NDArray[np.float32],
    slants: NDArray[np.float32],
    pens: NDArray[np.float32],
    draws: Draws,
) -> NDArray[np.uint8]:
    """One chunk of images: each digit placed, turned, bent and inked."""
    import numpy as np

    count = len(labels)
    writer = draws.pick(count, WRITERS)
    bend = spread(draws.bell(2 * count, 4, 4, wide=0.85), SIDE).reshape(2, count, SIDE, SIDE)
    middle = np.arange(SIDE, dtype=np.float32) - np.float32((SIDE - 1) / 2)
    shift = draws.bell(2, count, 1, 1, wide=0.6)
    x = middle[None, None, :] + shift[0] + bend[0]
    y = middle[None, :, None] + shift[1] + bend[1]
    # A rotation written with the tangent of half its angle needs no sine.
    turn = draws.bell(count, 1, 1, wide=0.06)
    norm = np.float32(1) / (np.float32(1) + turn * turn)
    cosine, sine = (np.float32(1) - turn * turn) * norm, np.float32(2) * turn * norm
    size = np.float32(1) / (np.float32(20 * REACH) * (1 + draws.bell(count, 1, 1, wide=0.08)))
    x, y = (cosine * x + sine * y) * size, (cosine * y - sine * x) * size
    x = x + (slants[writer][:, None, None] + draws.bell(count, 1, 1, wide=0.08)) * y
    gap = grid_sample(fields, writer * 10 + labels, x, y)
    gap *= np.float32(20)
    pen = pens[writer][:, None, None] + draws.bell(count, 1, 1, wide=0.15)
    ink = np.clip((pen - gap) * np.float32(1.0) + np.float32(0.5), 0, 1)
    pressure = spread(draws.uniform(count, 4, 4, low=0.75, high=1.6), SIDE)
    ink *= np.minimum(pressure, np.float32(1))
    grain = draws.octets(count * SIDE * SIDE).reshape(count, SIDE, SIDE)
    ink *= np.float32(255) - (grain & 31)
    written: NDArray[np.uint8] = ink.astype(np.uint8)
    return written
