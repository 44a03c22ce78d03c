"""The lectures' own programs of tensor parallelism compute what serial ones do, on any shape."""

import numpy as np
import pytest

import labkit
from labkit import LabError, collectives
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


@pytest.mark.skipif(not hasattr(labkit.cluster, "communicator"), reason="comes with it")
def test_a_transformer_layer_runs_in_local_processes(lecture, warm):
    step, right = the_layer(lecture, 2, 5, 4)
    with labkit.cluster(ranks=2) as c:
        returned = c.run(lambda rank: step(labkit.cluster.communicator()), timeout=120, show=False)
    for rank, mine in enumerate(returned):
        for one, two in zip(mine, right(rank, 2), strict=True):
            assert is_close(one, two)
