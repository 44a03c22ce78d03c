"""The programs of lectures 42 and 43 compute what serial ones do, on any shape that divides."""

from itertools import pairwise
from types import FunctionType

import numpy as np
import pytest
import tensorflow as tf

import labkit
from labkit.collectives import messages
from tests.exercises.cells import cells_of, under_mpi
from tests.strategies.conftest import warm

__all__ = ["warm"]  # its ranks need TensorFlow


@pytest.fixture(scope="module")
def lecture():
    """The functions of lecture 42, by name."""
    cells = ["08", "10", "17", "20", "22c", "38b", "38e"]
    return cells_of("42", [f"tensor-{cell}" for cell in cells], tf=tf)


def is_close(found, right):
    return np.abs(np.asarray(found) - right).max() <= 1e-12 * np.abs(right).max()


def the_layer(lecture, batch, length, heads, sequence=False):
    """What lecture 42 trains, of any shape: the step of a rank, and the serial results."""
    random = np.random.default_rng(heads)
    x, dy = random.normal(size=(2, batch, length, width := 4 * heads))
    attention, mlp = lecture["attention"], lecture["mlp"]
    shapes = [(width, width)] * 4 + [(width, 3 * width), (3 * width, width)]
    weights = [random.normal(size=shape) / width**0.5 for shape in shapes]
    kind = "sequence_" * sequence

    def cut(array, rank, ranks):
        return np.split(array, ranks, axis=1)[rank] if sequence else array

    def shards(whole, rank, ranks):
        shard = lecture["shard"]
        return [shard(whole[:4], rank, ranks), shard(whole[4:], rank, ranks)]

    def step(comm):
        place = comm.Get_rank(), comm.Get_size()
        blocks = list(zip((attention, mlp), shards(weights, *place), strict=True))
        y, kept = lecture[f"{kind}forward"](comm, cut(x, *place), blocks)
        dx, gradients = lecture[f"{kind}backward"](comm, cut(dy, *place), kept)
        return [np.asarray(one) for one in (y, dx, *gradients[0], *gradients[1])]

    flat = [tf.constant(one) for one in (x, *weights)]
    with tf.GradientTape() as tape:
        tape.watch(flat)
        y = flat[0] + attention(*flat[:5])
        y = y + mlp(y, *flat[5:])
    dx, *of_weights = tape.gradient(y, flat, output_gradients=dy)

    def right(*place):
        of_attention, of_mlp = shards(of_weights, *place)
        return [cut(y, *place), cut(dx, *place), *of_attention, *of_mlp]

    return step, right


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize(("ranks", "heads"), [(1, 2), (3, 6)])
@pytest.mark.parametrize(("batch", "positions"), [(2, 2)])
def test_a_transformer_layer_has_the_serial_gradients_and_the_published_bytes(
    lecture, ranks, heads, batch, positions, sequence
):
    length = positions * ranks
    step, right = the_layer(lecture, batch, length, heads, sequence)
    trace, returned = lecture["run_on"](ranks, step)
    for rank, mine in enumerate(returned):
        assert all(map(is_close, mine, right(rank, ranks)))
    # Narayanan and others (2021): 8 b s h (t - 1) / t elements of each rank.
    elements = 8 * batch * length * 4 * heads * (ranks - 1) / ranks
    assert set(trace.bytes_sent) == {8 * elements}


def test_attention_is_that_of_a_loop_over_heads(lecture):
    x, *weights = np.random.default_rng(0).normal(size=(5, 3, 8, 8))[:, 0]
    wq, wk, wv, wo = weights
    right = 0
    for head in (slice(0, 4), slice(4, 8)):
        scores = np.exp(x @ wq[:, head] @ (x @ wk[:, head]).T / 2)
        right += scores / scores.sum(axis=1, keepdims=True) @ x @ wv[:, head] @ wo[head]
    assert is_close(lecture["attention"](x[None], *weights)[0], right)


def test_an_mlp_runs_under_mpi(lecture):
    pytest.importorskip("mpi4py")
    x, dy, w1, w2 = np.random.default_rng(0).normal(size=(4, 6, 6))
    hidden, step = x @ w1, lecture["mlp_step"]
    right = np.maximum(hidden, 0) @ w2, ((dy @ w2.T) * (hidden > 0)) @ w1.T

    def program(comm, buffer):
        rank = comm.Get_rank()
        buffer[:] = step(comm, x, np.split(w1, 3, axis=1)[rank], np.split(w2, 3)[rank], dy)[:2]

    outputs = under_mpi(program, [np.zeros((2, 6, 6))] * 3)
    assert all(is_close(one, right) for one in outputs)


@pytest.fixture(scope="module")
def images():
    """The functions of lecture 43, by name."""
    cells = ["05", "05b", "06a", "07", "08", "34", "38", "39"]
    cells = [f"spatial-{cell}" for cell in cells]
    return cells_of("43", cells, tf=tf, MPI=messages)


@pytest.mark.parametrize("rows", [[3], [1, 4, 2]])
@pytest.mark.parametrize(("width", "channels"), [(1, [1, 1]), (5, [3, 2, 4, 1])])
def test_convolutions_with_halos_are_the_serial_ones(images, rows, width, channels):
    random = np.random.default_rng(len(rows))
    image = random.normal(size=(sum(rows), width, channels[0]))
    d_output = random.normal(size=(sum(rows), width, channels[-1]))
    kernels = [random.normal(size=(3, 3, *pair)) for pair in pairwise(channels)]

    def step(comm):
        mine, of_mine = (np.split(one, cuts)[comm.Get_rank()] for one in (image, d_output))
        return images["spatial_step"](comm, mine, kernels, of_mine)

    cuts = np.cumsum(rows)[:-1]
    _, returned = images["run_on"](len(rows), step)
    outputs, d_rows, gradients = zip(*returned, strict=True)
    flat = [tf.constant(one) for one in (image, *kernels)]
    with tf.GradientTape() as tape:
        tape.watch(flat)
        y = flat[0]
        for kernel in flat[1:]:
            y = tf.nn.relu(tf.nn.conv2d(y[None], kernel, strides=1, padding="SAME")[0])
    d_image, *of_kernels = tape.gradient(y, flat, output_gradients=d_output)
    assert is_close(np.concatenate(outputs), y)
    assert is_close(np.concatenate(d_rows), d_image)
    for each in gradients:
        assert all(map(is_close, each, of_kernels))


def the_hybrid(images, replicas, stages, tensor):
    """What lecture 43 trains, of any shape: the step of a rank, and the serial gradients."""
    random = np.random.default_rng(stages)
    xs, targets = random.normal(size=(2, replicas * 2, 3))
    layers = random.normal(size=(stages, 3, 12)), random.normal(size=(stages, 12, 3))
    names = {**images, "xs": xs, "targets": targets, "layers": layers}
    function = images["one_rank"]
    one_rank = FunctionType(function.__code__, names, "one_rank")
    w1, w2 = map(tf.constant, layers)
    with tf.GradientTape() as tape:
        tape.watch([w1, w2])
        y = tf.constant(xs)
        for stage in range(stages):
            y = y + tf.nn.relu(y @ w1[stage]) @ w2[stage]
        loss = tf.reduce_sum((y - targets) ** 2) / 2 / len(xs)
    of_w1, of_w2 = tape.gradient(loss, [w1, w2])

    def right(stage, part):
        dw1 = np.split(of_w1[stage], tensor, axis=1)[part]
        return dw1, np.split(of_w2[stage], tensor)[part]

    return lambda comm: one_rank(comm, tensor, stages), right


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 3, 3)])
def test_a_hybrid_step_has_the_serial_gradients(images, shape):
    step, right = the_hybrid(images, *shape)
    _, returned = images["run_on"](int(np.prod(shape)), step)
    for rank, (replica, stage, part, *found) in enumerate(returned):
        assert (replica, stage, part) == np.unravel_index(rank, shape)
        assert all(map(is_close, found, right(stage, part)))


def test_every_program_runs_in_local_processes(lecture, images):
    step, right = the_hybrid(images, 1, 2, 2)
    layer, of_layer = the_layer(lecture, 1, 4, 4, sequence=True)
    rows, exchange = np.arange(24.0).reshape(4, 2, 3), images["exchange"]

    def in_a_process(rank):
        assert tf  # it is named here: so it is imported once, before the ranks are forked

        comm = labkit.cluster.communicator()
        return exchange(comm, rows[rank : rank + 1]), layer(comm), step(comm)

    with labkit.cluster(ranks=4) as c:
        returned = c.run(in_a_process, timeout=120, show=False)
    padded = np.pad(rows, ((1, 1), (0, 0), (0, 0)))
    for rank, (window, mine, (_, stage, part, *found)) in enumerate(returned):
        assert (window == padded[rank : rank + 3]).all()
        assert all(map(is_close, mine, of_layer(rank, 4)))
        assert all(map(is_close, found, right(stage, part)))
