"""Recomputation changes no bit of the gradients, and keeps what the formulas say."""

import numpy as np
import pytest

from labkit.exercises import check
from labkit.memory import recompute

STEPS = (recompute.keep_everything, recompute.selective, recompute.full)


def test_the_block_has_the_gradients_of_a_tape():
    import tensorflow as tf

    (block,), x = recompute.stack(1, tokens=7, hidden=4)
    y, kept = block.forward(x, seed=3)
    dx, gradients = block.backward(kept, y)
    with tf.device("CPU:0"), tf.GradientTape() as tape:
        start, *matrices = [tf.Variable(one) for one in (x, *block.matrices)]
        q, k, v = (start @ one for one in matrices[:3])
        weights = tf.nn.softmax(q @ tf.transpose(k) / 4**0.5)
        dropped = weights * kept["mask"].astype("float32") / (1 - recompute.RATE)
        middle = start + dropped @ v @ matrices[3]
        out = middle + tf.nn.relu(middle @ matrices[4]) @ matrices[5]
        loss = tf.reduce_sum(out**2) / 2
    np.testing.assert_allclose(y, out, rtol=1e-5, atol=1e-6)
    right = tape.gradient(loss, [start, *matrices])
    for one, other in zip((dx, *gradients), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("layers", "s", "h"), [(1, 24, 8), (5, 24, 8), (4, 9, 16)])
def test_all_programs_end_in_the_same_bits_and_keep_what_is_modelled(layers, s, h):
    blocks, x = recompute.stack(layers, s, h)
    counts = [recompute.measured(step, blocks, x) for step in STEPS]
    for one in counts[1:]:
        for own, other in zip(one.result, counts[0].result, strict=True):
            assert all(map(np.array_equal, own, other))
    size, square = 4 * s * h, 9 * s**2
    assert [one.peak for one in counts] == [
        layers * (10 * size + square),
        layers * 10 * size + square,
        layers * size + 10 * size + square,
    ]
    assert [one.forwards for one in counts] == [layers, layers, 2 * layers]


def test_other_right_answers_are_right():
    def without_the_last(blocks, x, gradient, draw):
        """The last block need not run twice; and a loop by number."""
        kept, seeds, found = [], [draw() for _ in blocks], [None] * len(blocks)
        for block, seed in zip(blocks, seeds, strict=True):
            kept.append(x)
            activations = None
            x, activations = block.forward(x, seed)
        dy = gradient(x)
        for n in range(len(blocks) - 1, -1, -1):
            if n < len(blocks) - 1:
                _, activations = blocks[n].forward(kept[n], seeds[n])
            dy, found[n] = blocks[n].backward(activations, dy)
        return found

    assert check("44.full_recompute", without_the_last)
    assert check("44.full_recompute", recompute.full)
    assert check("44.selective_recompute", recompute.selective)
    assert not check("44.selective_recompute", recompute.keep_everything)
    assert not check("44.full_recompute", recompute.selective)
