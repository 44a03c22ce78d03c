"""Small colour scenes drawn by labkit: what stands in for CIFAR-100 where there is no internet.

A class is a shape, a pattern on it, a pair of colours and a kind of background. Five classes with
the same shape on the same kind of background make a group, so that some mistakes are closer than
others. Where the shape stands, how large and how turned it is, the light, the exact colours and
what else is in the picture differ from image to image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.datasets.draws import Draws, grid_sample, spread, triangle_wave
from labkit.progress import unseen

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

__all__ = ["draw_scenes"]

SIDE = 32
CHUNK = 500
FIELD = 64
SHAPES, PATTERNS, GROUNDS = 10, 5, 2


def draw_scenes(
    count: int, seed: int, split: int, advance: Callable[[int], None] = unseen
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (count, 32, 32, 3) and fine labels (count,), 0 to 99; label // 5 is the group.

    `advance` is told how many images are done.
    """
    import numpy as np

    labels = Draws(seed, split, 0).labels(count, SHAPES * PATTERNS * GROUNDS)
    shapes = _shapes()
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        draws = Draws(seed, split, 1, start)
        images[start:stop] = _scene(labels[start:stop].astype(np.int64), shapes, draws)
        advance(stop)
    return images, labels


def _shapes() -> Floats:
    """How far inside (above zero) or outside each of ten shapes a place is, on -1 ... 1."""
    import numpy as np

    axis = np.arange(FIELD, dtype=np.float32) * np.float32(2 / (FIELD - 1)) - np.float32(1)
    x, y = np.broadcast_to(axis, (FIELD, FIELD)), np.broadcast_to(axis[:, None], (FIELD, FIELD))
    ax, ay = np.abs(x), np.abs(y)
    far = np.sqrt(x * x + y * y)
    triangle = np.minimum(0.36 - y, 0.5 * y + 0.36 - 0.87 * ax)
    flipped = np.minimum(0.36 + y, -0.5 * y + 0.36 - 0.87 * ax)
    bars = np.maximum(0.17 - ax, 0.17 - ay) - np.maximum(np.maximum(ax, ay) - 0.6, 0) * 3
    bite = np.sqrt((x - 0.32) * (x - 0.32) + y * y) - 0.42
    knobs = 0.28 - np.sqrt((ax - 0.36) * (ax - 0.36) + y * y)
    upright = 0.15 - np.maximum(np.abs(x + 0.32), ay - 0.4)
    lying = 0.15 - np.maximum(ax - 0.32, np.abs(y - 0.4))
    shapes = (
        0.55 - far,  # disc
        0.15 - np.abs(far - 0.48),  # ring
        0.48 - np.maximum(ax, ay),  # square
        triangle,
        0.6 - (ax + ay * 1.9),  # flat diamond
        bars,  # cross
        np.minimum(0.55 - far, bite),  # crescent
        np.maximum(triangle, flipped) - 0.02,  # star of six points
        np.maximum(knobs, 0.1 - np.maximum(ay, ax - 0.3)),  # dumb-bell
        np.maximum(upright, lying),  # an L
    )
    return np.stack(shapes).astype(np.float32)


def _scene(labels: NDArray[np.int64], shapes: Floats, draws: Draws) -> NDArray[np.uint8]:
    """One chunk of images."""
    import numpy as np

    count = len(labels)
    pattern, shape = labels % PATTERNS, labels // PATTERNS % SHAPES
    ground = labels // (PATTERNS * SHAPES)
    x, y, pixel = _placed(draws, count, low=0.55, high=0.9, shift=0.2)
    inside = np.clip(grid_sample(shapes, shape, x, y) / pixel + np.float32(0.5), 0, 1)
    marks = _pattern(pattern, x, y, draws)
    # The pattern of a class has its own hue, the other colours are anybody's.
    own = labels.astype(np.float32) * np.float32(0.382) + draws.bell(count, wide=0.1)
    other = own + np.float32(0.5) + draws.bell(count, wide=0.12)
    colours = [
        _colour(own, draws, count, bright=(0.55, 1.0)),
        _colour(other, draws, count, bright=(0.25, 0.95)),
        _colour(draws.uniform(count), draws, count, bright=(0.2, 0.9)),
        _colour(draws.uniform(count), draws, count, bright=(0.2, 0.9)),
    ]
    scenery = _ground(ground, draws)
    # Something that tells nothing about the class stands in the way.
    x, y, pixel = _placed(draws, count, low=0.22, high=0.4, shift=0.75)
    clutter = grid_sample(shapes, draws.pick(count, SHAPES), x, y)
    clutter = np.clip(clutter / pixel + np.float32(0.5), 0, 1)
    stray = _colour(draws.uniform(count), draws, count, bright=(0.2, 1.0))
    light = spread(draws.uniform(count, 3, 3, low=0.65, high=1.1), SIDE)
    grain = draws.octets(count * SIDE * SIDE * 3).reshape(count, SIDE, SIDE, 3)
    image = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for channel in range(3):
        first, second, near, distant = (c[channel][:, None, None] for c in colours)
        figure = second + (first - second) * marks
        plane = distant + (near - distant) * scenery
        plane += (stray[channel][:, None, None] - plane) * clutter
        plane += (figure - plane) * inside
        plane *= light
        plane = np.clip(plane, 0, 1) * np.float32(248) + (grain[..., channel] & 7)
        # 64 levels are enough for the eye and for learning, and save a third of the file.
        image[..., channel] = plane.astype(np.uint8) & 252
    return image


def _placed(
    draws: Draws, count: int, low: float, high: float, shift: float
) -> tuple[Floats, Floats, Floats]:
    """Where each pixel lies on a shape that is moved, scaled, turned and slightly bent."""
    import numpy as np

    axis = np.arange(SIDE, dtype=np.float32) * np.float32(2 / SIDE) - np.float32(1 - 1 / SIDE)
    bend = spread(draws.bell(2 * count, 3, 3, wide=0.06), SIDE).reshape(2, count, SIDE, SIDE)
    move = draws.bell(2, count, 1, 1, wide=shift)
    scale = np.float32(1) / draws.uniform(count, 1, 1, low=low, high=high)
    # Any direction, without a sine: a point of a ring around the middle, brought to length one.
    east, south = (
        draws.bell(count, 1, 1, wide=0.4) + np.float32(1),
        draws.bell(count, 1, 1, wide=0.4),
    )
    length = np.sqrt(east * east + south * south) + np.float32(1e-6)
    cosine, sine = east / length * scale, south / length * scale
    x, y = axis[None, None, :] - move[0] + bend[0], axis[None, :, None] - move[1] + bend[1]
    pixel = scale * np.float32(2.2 / SIDE)
    return cosine * x + sine * y, cosine * y - sine * x, pixel


def _pattern(pattern: NDArray[np.int64], x: Floats, y: Floats, draws: Draws) -> Floats:
    """Plain, stripes, dots, checks or rings, from 0 to 1."""
    import numpy as np

    count = len(pattern)
    often = draws.uniform(count, 1, 1, low=2.2, high=3.2)
    phase = draws.uniform(2, count, 1, 1)
    marks: Floats = np.empty_like(x)
    for kind in range(PATTERNS):
        some = np.flatnonzero(pattern == kind)
        rate = often[some]
        u, v = x[some] * rate + phase[0, some], y[some] * rate + phase[1, some]
        if kind == 0:
            wave = np.full_like(u, 0.8)
        elif kind == 1:
            wave = triangle_wave(u)
        elif kind == 2:
            wave = triangle_wave(u) + triangle_wave(v) + np.float32(0.4)
        elif kind == 3:
            wave = triangle_wave(u * np.float32(0.8)) * triangle_wave(v * np.float32(0.8)) * 3
        else:
            far = np.sqrt(x[some] * x[some] + y[some] * y[some])
            wave = triangle_wave(far * rate * np.float32(1.1) + phase[0, some])
        marks[some] = np.clip(wave * np.float32(1.5) + np.float32(0.5), 0, 1)
    return marks


def _ground(ground: NDArray[np.int64], draws: Draws) -> Floats:
    """Behind the shape: soft clouds, or rough grass; from 0 to 1."""
    import numpy as np

    count = len(ground)
    clouds = spread(draws.uniform(count, 4, 4), SIDE)
    grass = spread(draws.uniform(count, 14, 14), SIDE)
    share = np.where(ground == 0, np.float32(0.1), np.float32(0.75)).astype(np.float32)
    share = np.clip(share + draws.bell(count, wide=0.1), 0, 1)[:, None, None]
    field: Floats = clouds + (grass - clouds) * share
    return field


def _colour(
    hue: Floats, draws: Draws, count: int, bright: tuple[float, float]
) -> tuple[Floats, ...]:
    """Red, green and blue of hues (a whole turn is 1) as strong and as bright as chance has it."""
    import numpy as np

    strength = draws.uniform(count, low=0.3, high=0.95)
    value = draws.uniform(count, low=bright[0], high=bright[1])
    channels = []
    for third in range(3):
        wave = triangle_wave(hue + np.float32(third / 3)) * np.float32(1.5) + np.float32(0.5)
        channels.append(value * (1 - strength * (1 - np.clip(wave, 0, 1))))
    return tuple(channels)
