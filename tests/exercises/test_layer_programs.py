"""The programs of lectures 19 and 20 compute what serial ones do, on any shape that divides."""

from itertools import pairwise
from types import FunctionType

import numpy as np
import pytest

import labkit
from labkit import LabError, collectives
from labkit.collectives import messages
from tests.exercises.cells import cells_of


@pytest.fixture(scope="module")
def lecture():
    """The functions of lecture 19, by name."""
    import tensorflow as tf

    return cells_of("19", ["tensor-08", "tensor-10", "tensor-17", "tensor-20", "tensor-22c"], tf=tf)


def is_close(found, right, within=1e-12):
    return np.abs(np.asarray(found) - right).max() <= within * np.abs(right).max()


def serial_mlp(x, w1, w2, dy):
    hidden = x @ w1
    d_hidden = dy @ w2.T * (hidden > 0)
    active = np.maximum(hidden, 0)
    return active @ w2, d_hidden @ w1.T, x.T @ d_hidden, active.T @ dy


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
@pytest.mark.parametrize("shape", [(1, 1, 6), (5, 4, 12), (3, 8, 24)])
def test_an_mlp_by_columns_and_rows_is_the_serial_one(lecture, ranks, shape):
    tokens, width, hidden = shape
    random = np.random.default_rng(ranks)
    x, dy = random.normal(size=(2, tokens, width))
    w1, w2 = random.normal(size=(width, hidden)), random.normal(size=(hidden, width))
    columns, rows = np.split(w1, ranks, axis=1), np.split(w2, ranks)

    def step(comm):
        rank = comm.Get_rank()
        return lecture["mlp_step"](comm, x, columns[rank], rows[rank], dy)

    _, returned = lecture["run_on"](ranks, step)
    y, dx, dw1, dw2 = serial_mlp(x, w1, w2, dy)
    cuts = zip(np.split(dw1, ranks, axis=1), np.split(dw2, ranks), strict=True)
    for mine, (of_w1, of_w2) in zip(returned, cuts, strict=True):
        for one, right in zip(mine, (y, dx, of_w1, of_w2), strict=True):
            assert is_close(one, right)


def the_layer(lecture, batch, sequence, heads, dtype="float64"):
    """What lecture 19 trains, of any shape: the step of a rank, and the serial results."""
    import tensorflow as tf

    width = 4 * heads
    random = np.random.default_rng(heads)
    x, dy = random.normal(size=(2, batch, sequence, width)).astype(dtype)
    attention, mlp = lecture["attention"], lecture["mlp"]
    shapes = {attention: [(width, width)] * 4, mlp: [(width, 3 * width), (3 * width, width)]}
    weights = {
        block: [random.normal(size=one).astype(dtype) / width**0.5 for one in shapes[block]]
        for block in shapes
    }

    def step(comm):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        shards = [(block, lecture["shard"](weights[block], rank, ranks)) for block in weights]
        y, kept = lecture["forward"](comm, x, shards)
        dx, gradients = lecture["backward"](comm, dy, kept)
        return [np.asarray(one) for one in (y, dx, *gradients[0], *gradients[1])]

    flat = [tf.constant(one) for one in (x, *weights[attention], *weights[mlp])]
    with tf.GradientTape() as tape:
        tape.watch(flat)
        y = flat[0] + attention(*flat[:5])
        y = y + mlp(y, *flat[5:])
    dx, *of_weights = tape.gradient(y, flat, output_gradients=dy)

    def right(rank, ranks):
        shards = lecture["shard"](of_weights[:4], rank, ranks)
        return [y, dx, *shards, *lecture["shard"](of_weights[4:], rank, ranks)]

    return step, right


@pytest.mark.parametrize(("ranks", "heads"), [(1, 2), (2, 2), (3, 6), (4, 8), (8, 8)])
@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (2, 5)])
def test_a_transformer_layer_has_the_serial_gradients_and_the_published_bytes(
    lecture, ranks, heads, batch, sequence
):
    step, right = the_layer(lecture, batch, sequence, heads)
    trace, returned = lecture["run_on"](ranks, step)
    for rank, mine in enumerate(returned):
        for one, two in zip(mine, right(rank, ranks), strict=True):
            assert is_close(one, two)
    # Narayanan and others (2021): 8 b s h (t - 1) / t elements of each rank.
    elements = 8 * batch * sequence * 4 * heads * (ranks - 1) / ranks
    assert set(trace.bytes_sent) == {8 * elements}
    assert set(trace.messages_sent) == {4 * 2 * (ranks - 1)}


def test_in_float32_it_differs_by_rounding_only(lecture):
    step, right = the_layer(lecture, 2, 16, 8, "float32")
    _, returned = lecture["run_on"](4, step)
    for rank, mine in enumerate(returned):
        for one, two in zip(mine, right(rank, 4), strict=True):
            assert is_close(one, two, within=1e-6)


def test_an_mlp_runs_under_mpi(lecture):
    pytest.importorskip("mpi4py")
    x, dy, w1, w2 = np.random.default_rng(0).normal(size=(4, 6, 6))
    step = lecture["mlp_step"]

    def program(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        columns, rows = np.split(w1, ranks, axis=1)[rank], np.split(w2, ranks)[rank]
        buffer[:] = step(comm, x, columns, rows, dy)[:2]

    try:
        outputs = collectives.run_mpi(program, [np.zeros((2, 6, 6))] * 3)
    except LabError as error:
        if "no mpiexec" in str(error):
            pytest.skip(str(error))
        raise
    for output in outputs:
        for one, two in zip(output, serial_mlp(x, w1, w2, dy)[:2], strict=True):
            assert is_close(one, two)


def test_a_transformer_layer_runs_in_local_processes(lecture, warm):
    step, right = the_layer(lecture, 2, 5, 4)
    with labkit.cluster(ranks=2) as c:
        returned = c.run(lambda rank: step(labkit.cluster.communicator()), timeout=120, show=False)
    for rank, mine in enumerate(returned):
        for one, two in zip(mine, right(rank, 2), strict=True):
            assert is_close(one, two)


@pytest.fixture(scope="module")
def images():
    """The functions of lecture 20, by name."""
    import tensorflow as tf

    cells = ["spatial-05", "spatial-07", "spatial-08", "spatial-34", "spatial-38", "spatial-39"]
    return cells_of("20", cells, tf=tf, MPI=messages)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("rows", "width", "channels"), [(1, 1, [1, 1]), (4, 5, [3, 2, 4, 1])])
def test_convolutions_with_halos_are_the_serial_ones(images, ranks, rows, width, channels):
    import tensorflow as tf

    random = np.random.default_rng(ranks)
    image = random.normal(size=(rows * ranks, width, channels[0]))
    d_output = random.normal(size=(rows * ranks, width, channels[-1]))
    kernels = [random.normal(size=(3, 3, *pair)) for pair in pairwise(channels)]

    def step(comm):
        mine = [np.split(one, ranks)[comm.Get_rank()] for one in (image, d_output)]
        return images["spatial_step"](comm, mine[0], kernels, mine[1])

    _, returned = images["run_on"](ranks, step)
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
        for one, right in zip(each, of_kernels, strict=True):
            assert is_close(one, right)


def test_a_halo_exchange_takes_two_steps_and_two_rows_on_any_number_of_ranks(images):
    exchange = images["exchange"]
    for ranks in (3, 4, 9):
        trace, _ = images["run_on"](ranks, lambda comm: exchange(comm, np.zeros((2, 5, 3))))
        assert trace.steps == 2
        assert set(trace.bytes_sent[1:-1]) == {2 * 5 * 3 * 8}


def the_hybrid(images, replicas, stages, tensor, examples=2):
    """What lecture 20 trains, of any shape: the step of a rank, and the serial gradients."""
    import tensorflow as tf

    random = np.random.default_rng(stages)
    xs, targets = random.normal(size=(2, replicas * examples, 3))
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


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 2, 2), (3, 1, 2), (1, 3, 2), (4, 2, 1), (2, 3, 3), (1, 1, 4)]
)
def test_a_hybrid_step_has_the_serial_gradients(images, shape):
    step, right = the_hybrid(images, *shape)
    ranks = np.prod(shape)
    _, returned = images["run_on"](int(ranks), step)
    for rank, (replica, stage, part, *found) in enumerate(returned):
        assert (replica, stage, part) == np.unravel_index(rank, shape)
        for one, two in zip(found, right(stage, part), strict=True):
            assert is_close(one, two)


def test_the_groups_of_a_rank_are_those_of_the_picture(images):
    _, returned = images["run_on"](8, lambda comm: images["members"](comm, tensor=2, stages=2))
    assert returned[6] == {"tensor": [6, 7], "pipeline": [4, 6], "data": [2, 6]}
    numbers = np.arange(8).reshape(2, 2, 2)
    for kind, axis in (("data", 0), ("pipeline", 1), ("tensor", 2)):
        groups = np.moveaxis(numbers, axis, -1).reshape(-1, 2).tolist()
        assert sorted({tuple(found[kind]) for found in returned}) == sorted(map(tuple, groups))


def test_a_halo_exchange_and_a_hybrid_step_run_in_local_processes(images, warm):
    step, right = the_hybrid(images, 1, 2, 2)
    rows, exchange = np.arange(24.0).reshape(4, 2, 3), images["exchange"]

    def in_a_process(rank):
        comm = labkit.cluster.communicator()
        return exchange(comm, rows[rank : rank + 1]), step(comm)

    with labkit.cluster(ranks=4) as c:
        returned = c.run(in_a_process, timeout=120, show=False)
    padded = np.pad(rows, ((1, 1), (0, 0), (0, 0)))
    for rank, (window, (_, stage, part, *found)) in enumerate(returned):
        assert (window == padded[rank : rank + 3]).all()
        for one, two in zip(found, right(stage, part), strict=True):
            assert is_close(one, two)
