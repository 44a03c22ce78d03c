"""Tensor, sequence, spatial and hybrid programs: what is wrong is named by rank and piece."""

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.collectives.messages import PROC_NULL
from labkit.exercises import check


def all_reduce(comm, array, program=programs.ring_all_reduce):
    total = np.array(array)
    program(comm, total)
    return total


def by_hand(comm, array):
    """An all-reduce that is no library program: everything to everyone."""
    array = np.array(array)
    others = set(range(comm.Get_size())) - {comm.Get_rank()}
    requests = [comm.Isend(array, dest=other) for other in others]
    total = array.copy()
    for other in others:
        part = np.empty_like(array)
        comm.Recv(part, source=other)
        total += part
    for request in requests:
        request.Wait()
    return total


def mean(comm, array):
    return all_reduce(comm, array) / comm.Get_size()


def nothing(comm, array):
    return array


def rank_0_only(comm, array):
    total = np.array(array)
    programs.reduce(comm, total)
    return total


def column(sum_dx=all_reduce, sum_dw=nothing):
    def program(comm, x, w, dy):
        return x @ w, sum_dx(comm, dy @ w.T), sum_dw(comm, x.T @ dy)

    return program


def gated(sum_y=all_reduce, sum_dx=None, apart=False, gate=True):
    def program(comm, x, w1, w2, w3, dy):
        a, b, d = x @ w1, x @ w2, dy @ w3.T
        parts = [(d * b * (a > 0 if gate else 1)) @ w1.T, (d * np.maximum(a, 0)) @ w2.T]
        summed = sum_dx or sum_y
        dx = sum(summed(comm, part) for part in parts) if apart else summed(comm, sum(parts))
        return sum_y(comm, (np.maximum(a, 0) * b) @ w3), dx

    return program


def gather(comm, x, program=programs.all_gather):
    whole = np.zeros((comm.Get_size(), *x.shape))
    whole[comm.Get_rank()] = x
    program(comm, whole)
    return whole.reshape(-1, *x.shape[1:])


def mine_of(comm, whole):
    return np.split(whole, comm.Get_size())[comm.Get_rank()]


def sequence(gathered=gather, reduced=programs.reduce_scatter, skip=1.0):
    def program(comm, x, block):
        part = block(gathered(comm, x))
        reduced(comm, part)
        return skip * x + mine_of(comm, part)

    return program


def direct(comm, buffer):
    """A reduce-scatter in which every rank sends each other rank its chunk."""
    ranks, chunks = comm.Get_size(), np.array_split(buffer.reshape(-1), comm.Get_size())
    total = mine_of(comm, buffer)
    for distance in range(1, ranks):
        dest, source = (comm.rank + distance) % ranks, (comm.rank - distance) % ranks
        part = np.empty_like(chunks[comm.rank])
        comm.Sendrecv(chunks[dest], dest=dest, recvbuf=part, source=source)
        total += part.reshape(total.shape)


def cut(comm, qkv, heads):
    return np.split(qkv, comm.Get_size())[comm.Get_rank()]


def by_index(comm, qkv, heads):
    size = len(qkv) // 3 // heads
    per_rank = heads // comm.Get_size()
    first = comm.Get_rank() * per_rank
    kept = [(kind * heads + first + head) * size + column
            for kind in range(3) for head in range(per_rank) for column in range(size)]  # fmt: skip
    return qkv[kept]


def shifted(comm, top, bottom, above, below, into_above, into_below):
    """Two Sendrecv along a chain of ranks: `top` goes up, `bottom` goes down."""
    up = comm.Get_rank() - 1 if comm.Get_rank() else PROC_NULL
    down = comm.Get_rank() + 1 if comm.Get_rank() + 1 < comm.Get_size() else PROC_NULL
    if below:
        comm.Sendrecv(bottom, dest=down, recvbuf=into_above, source=up)
    if above:
        comm.Sendrecv(top, dest=up, recvbuf=into_below, source=down)


def halo(above=True, below=True, take=1):
    def program(comm, rows, width):
        padded = np.zeros((len(rows) + 2 * width, *rows.shape[1:]))
        padded[width:-width] = rows
        top, bottom = rows[(take - 1) * width :][:width], rows[-width:]
        shifted(comm, top, bottom, above, below, padded[:width], padded[-width:])
        return padded

    return program


def mirrored(comm, rows, width):
    """Wrong at the edges of the image: no zeros there."""
    padded = halo()(comm, rows, width)
    if comm.Get_rank() == 0:
        padded[:width] = rows[:width]
    return padded


def one_row_only(comm, rows, width):
    return np.pad(halo()(comm, rows, 1), ((width - 1, width - 1), (0, 0), (0, 0)))


def even_and_odd(comm, rows, width):
    """Right: blocking sends in an order that does not deadlock."""
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    padded = np.pad(rows, ((width, width), (0, 0), (0, 0)))

    def to_above():
        if rank > 0:
            comm.Send(rows[:width], dest=rank - 1)
            comm.Recv(padded[:width], source=rank - 1)

    def to_below():
        if rank < last:
            comm.Recv(padded[-width:], source=rank + 1)
            comm.Send(rows[-width:], dest=rank + 1)

    for part in (to_above, to_below) if rank % 2 else (to_below, to_above):
        part()
    return padded


def halo_backward(above=True, below=True, add=np.add):
    def program(comm, d_padded, width):
        own = d_padded[width:-width].copy()
        received = np.zeros((2, width, *own.shape[1:]))
        top, bottom = d_padded[:width], d_padded[-width:]
        shifted(comm, top, bottom, above, below, received[0], received[1])
        if comm.Get_rank() > 0:
            own[:width] = add(own[:width], received[0])
        if comm.Get_rank() + 1 < comm.Get_size():
            own[-width:] = add(own[-width:], received[1])
        return own

    return program


def colors(rank, tensor, stages):
    return (
        rank // tensor,
        rank // tensor // stages * tensor + rank % tensor,
        rank % (tensor * stages),
    )


def hybrid(
    examples=lambda targets, data: targets[..., 0].size * data.Get_size(),
    sum_weights=all_reduce,
    sum_part=all_reduce,
    sum_dx=all_reduce,
    first=0,
    one_by_one=False,
):
    """A step, micro-batch after micro-batch or all forward and then all backward."""

    def program(tensor, pipeline, data, micro_batches, targets, w1, w2):
        stage, last = pipeline.Get_rank(), pipeline.Get_size() - 1
        found, kept = [np.zeros_like(w1), np.zeros_like(w2)], []

        def forward(x):
            if stage:
                pipeline.Recv(x := np.empty_like(x), source=stage - 1)
            hidden = np.maximum(x @ w1, 0)
            y = x + sum_part(tensor, hidden @ w2)
            if stage < last:
                pipeline.Send(y, dest=stage + 1)
            kept.append((x, hidden, y))

        def backward(number, target):
            x, hidden, y = kept[number]
            dy = (y - target) / examples(targets, data)
            if stage < last:
                pipeline.Recv(dy, source=stage + 1)
            d_hidden = (dy @ w2.T) * (hidden > 0)
            dx = dy + sum_dx(tensor, d_hidden @ w1.T)
            if stage:
                pipeline.Send(dx, dest=stage - 1)
            found[0] += x.T @ d_hidden * (number >= first)
            found[1] += hidden.T @ dy * (number >= first)

        for number, x in enumerate(micro_batches):
            forward(x)
            if one_by_one:
                backward(number, targets[number])
        for number, target in enumerate([] if one_by_one else targets):
            backward(number, target)
        return [sum_weights(data, one) for one in found]

    return program


def transposed():
    """Groups of the wrong ranks: the tensor and the data group are exchanged."""

    def program(tensor, pipeline, data, *given):
        return hybrid()(data, pipeline, tensor, *given)

    return program


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("19.column_parallel", column(by_hand)),
        ("19.column_parallel", column(lambda c, a: all_reduce(c, a, programs.tree_all_reduce))),
        ("19.attention_heads", by_index),
        ("19.gated_mlp", gated(by_hand)),
        ("19.sequence_parallel", sequence(reduced=direct)),
        ("20.halo", halo()),
        ("20.halo", even_and_odd),
        ("20.halo_backward", halo_backward()),
        ("20.groups", colors),
        (
            "20.groups",
            lambda rank, t, s: [99 - one for one in colors(rank, t, s)],
        ),
        ("20.hybrid_step", hybrid()),
        ("20.hybrid_step", hybrid(one_by_one=True)),
        ("20.hybrid_step", hybrid(sum_weights=by_hand, sum_part=by_hand)),
    ],
)
def test_a_right_program_in_another_style_is_accepted(task, answer):
    assert check(task, answer), check(task, answer).text


@pytest.mark.parametrize(
    ("task", "answer", "words"),
    [
        ("19.column_parallel", column(nothing), ["rank 0's dx", "rank 1 is missing"]),
        ("19.column_parallel", column(rank_0_only), ["rank 1's dx", "rank 0 is missing"]),
        ("19.column_parallel", column(mean), ["rank 0's dx", "rank 0 counts 0.5 times"]),
        ("19.column_parallel", column(sum_dw=all_reduce), ["rank 0's dw", "no communication"]),
        ("19.column_parallel", column(lambda c, a: 3), ["rank 0's dx", "shape ()", "(5, 7)"]),
        ("19.column_parallel", lambda c, x, w, dy: x @ w, ["rank 0", "y, dx, dw"]),
        ("19.column_parallel", lambda c, x, w, dy: x @ w.T @ w, ["Rank 0 raised ValueError"]),
        ("19.attention_heads", cut, ["rank 0's shard", "row", "q, k and v"]),
        ("19.gated_mlp", gated(sum_dx=nothing), ["rank 0's dx", "rank 1 is missing"]),
        ("19.gated_mlp", gated(sum_y=nothing), ["rank 0's y", "rank 1 is missing"]),
        ("19.gated_mlp", gated(sum_dx=mean), ["rank 0's dx", "rank 0 counts 0.5 times"]),
        ("19.gated_mlp", gated(apart=True), ["It is correct", "384 B are enough"]),
        ("19.gated_mlp", gated(gate=False), ["On 2 ranks, rank 0's dx", "serial program"]),
        (
            "19.sequence_parallel",
            sequence(lambda comm, x: gather(comm, x, nothing)),
            ["rank 0's y", "rank 0's positions in rank 1's block is missing"],
        ),
        (
            "19.sequence_parallel",
            sequence(lambda comm, x: x),
            ["raised ValueError", "(6,8) (3,8)"],
        ),
        (
            "19.sequence_parallel",
            sequence(reduced=nothing),
            ["rank 0's y", "rank 1's block is missing"],
        ),
        ("19.sequence_parallel", sequence(skip=0.0), ["rank 0's y", "of x is missing"]),
        (
            "19.sequence_parallel",
            sequence(reduced=programs.ring_all_reduce),
            ["It is correct", "768 B are enough"],
        ),
        (
            "20.halo",
            halo(below=False),
            ["On 2 ranks, rank 1's padded", "row 0", "rank 0 is missing"],
        ),
        ("20.halo", halo(above=False), ["rank 0's padded", "row 7", "rank 1 is missing"]),
        ("20.halo", halo(take=2), ["rank 0's padded", "row 7", "not those"]),
        ("20.halo", mirrored, ["rank 0's padded", "row 0", "zeros"]),
        ("20.halo", one_row_only, ["On 4 ranks, rank 0's padded", "row 6", "rank 1"]),
        ("20.halo", lambda comm, rows, width: rows, ["rank 0's padded", "shape"]),
        (
            "20.halo_backward",
            halo_backward(below=False),
            ["On 2 ranks, rank 1's d_rows", "row 0", "rank 0 is missing"],
        ),
        (
            "20.halo_backward",
            halo_backward(add=lambda own, received: received),
            ["rank 0's d_rows", "row 5", "contribution of rank 0 is missing", "adds"],
        ),
        (
            "20.groups",
            lambda rank, t, s: colors(rank, t, s)[::-1],
            ["rank 0's tensor group is 0 and 4, and must be 0 and 1"],
        ),
        ("20.groups", lambda rank, t, s: ("a", "b", "c"), ["three colors"]),
        ("20.groups", lambda rank, t, s: (rank, t), ["rank 0", "three colors"]),
        (
            "20.groups",
            lambda rank, t, s: (rank // t, rank % t, rank % (t * s)),
            ["rank 0's pipeline group is 0, 2, 4 and 6, and must be 0 and 2"],
        ),
        (
            "20.hybrid_step",
            hybrid(lambda targets, data: targets[..., 0].size),
            ["On 2 ranks, rank 0's dw1", "micro-batch 0 of replica 0 counts 2 times", "mean"],
        ),
        (
            "20.hybrid_step",
            hybrid(sum_weights=nothing),
            ["rank 0's dw1", "of replica 1 is missing"],
        ),
        ("20.hybrid_step", hybrid(first=1), ["rank 0's dw1", "micro-batch 0", "is missing"]),
        ("20.hybrid_step", hybrid(sum_part=nothing), ["rank 0's dw1"]),
        ("20.hybrid_step", hybrid(sum_dx=nothing), ["On 8 ranks, rank 0's dw1"]),
        ("20.hybrid_step", transposed(), ["On 2 ranks, rank 0's dw"]),
    ],
)
def test_a_wrong_program_is_refused_with_its_rank_and_piece(task, answer, words):
    outcome = check(task, answer)
    assert outcome.state == "wrong"
    for word in words:
        assert word in outcome.text, outcome.text


def test_a_deadlock_names_the_ranks():
    def sends_first(comm, array):
        other, part = comm.Get_size() - 1 - comm.Get_rank(), np.empty_like(array)
        comm.Send(array, dest=other)
        comm.Recv(part, source=other)
        return array + part

    text = check("19.column_parallel", column(sends_first)).text
    assert "On 2 ranks" in text
    assert "rank 0 waits in Send to rank 1" in text
