"""Tensor, sequence, spatial and hybrid programs: what is wrong is named by rank and piece."""

from functools import partial

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.collectives.messages import PROC_NULL
from labkit.exercises import check
from tests.exercises.cells import refused


def all_reduce(comm, array):
    programs.ring_all_reduce(comm, array := np.array(array))
    return array


def gather_by_hand(comm, x):
    copies = np.stack([x] * comm.Get_size())
    programs.all_to_all(comm, copies)
    return copies.reshape(-1, *x.shape[1:])


def by_hand(comm, array):
    return gather_by_hand(comm, array[None]).sum(axis=0)


def mean(comm, array):
    return all_reduce(comm, array) / comm.Get_size()


def nothing(comm, array):
    return array


def rank_0_only(comm, array):
    programs.reduce(comm, array)
    return array


def sends_first(comm, array):
    other, part = comm.Get_size() - 1 - comm.Get_rank(), np.empty_like(array)
    comm.Send(array, dest=other)
    comm.Recv(part, source=other)
    return array + part


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


def by_index(comm, qkv, heads):
    return qkv.reshape(3, comm.Get_size(), -1, 4)[:, comm.Get_rank()].reshape(-1, 4)


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


def one_row_only(comm, rows, width):
    return np.pad(halo()(comm, rows, 1), ((width - 1, width - 1), (0, 0), (0, 0)))


def halo_backward(below=True, own=1, times=1):
    def program(comm, d_padded, width):
        d_rows, received = d_padded[width:-width], np.zeros((2, width, *d_padded.shape[1:]))
        top, bottom = d_padded[:width], d_padded[-width:]
        shifted(comm, top, bottom, True, below, received[0], received[1])
        if comm.Get_rank() > 0:
            d_rows[:width] = own * d_rows[:width] + times * received[0]
        if comm.Get_rank() + 1 < comm.Get_size():
            d_rows[-width:] = own * d_rows[-width:] + times * received[1]
        return d_rows

    return program


def colors(rank, tensor, stages):
    group = rank // tensor
    return group, group // stages * tensor + rank % tensor, rank % (tensor * stages)


def hybrid(
    examples=lambda targets, data: targets[..., 0].size * data.Get_size(),
    sum_weights=all_reduce,
    sum_part=all_reduce,
    sum_dx=all_reduce,
    first=0,
):
    def program(tensor, pipeline, data, micro_batches, targets, w1, w2):
        stage, last = pipeline.Get_rank(), pipeline.Get_size() - 1
        found = [np.zeros_like(w1), np.zeros_like(w2)]
        for number, (x, target) in enumerate(zip(micro_batches, targets, strict=True)):
            if stage:
                pipeline.Recv(x := np.empty_like(x), source=stage - 1)
            hidden = np.maximum(x @ w1, 0)
            y = x + sum_part(tensor, hidden @ w2)
            dy = (y - target) / examples(targets, data)
            if stage < last:
                pipeline.Send(y, dest=stage + 1)
                pipeline.Recv(dy, source=stage + 1)
            d_hidden = (dy @ w2.T) * (hidden > 0)
            dx = dy + sum_dx(tensor, d_hidden @ w1.T)
            if stage:
                pipeline.Send(dx, dest=stage - 1)
            found[0] += x.T @ d_hidden * (number >= first)
            found[1] += hidden.T @ dy * (number >= first)
        return [sum_weights(data, one) for one in found]

    return program


RIGHT = {
    "19.column_parallel": [column(by_hand)],
    "19.gated_mlp": [gated(by_hand)],
    "19.attention_heads": [by_index],
    "19.sequence_parallel": [sequence(gather_by_hand)],
    "20.halo": [halo()],
    "20.halo_backward": [halo_backward()],
    "20.groups": [colors, lambda rank, t, s: [99 - one for one in colors(rank, t, s)]],
    "20.hybrid_step": [hybrid(), hybrid(sum_weights=by_hand, sum_part=by_hand)],
}
WRONG = {
    "19.column_parallel": [
        (column(nothing), "rank 0's dx", "rank 1 is missing"),
        (column(rank_0_only), "rank 1's dx", "rank 0 is missing"),
        (column(mean), "rank 0's dx", "rank 0 counts 0.5 times"),
        (column(sends_first), "On 2 ranks", "rank 0 waits in Send to rank 1"),
        (column(sum_dw=all_reduce), "rank 0's dw", "no communication"),
        (column(lambda comm, array: 3), "rank 0's dx", "shape ()", "(5, 7)"),
        (lambda comm, x, w, dy: x @ w, "rank 0", "y, dx, dw"),
        (lambda comm, x, w, dy: x @ w.T @ w, "Rank 0 raised ValueError"),
    ],
    "19.gated_mlp": [
        (gated(sum_dx=nothing), "rank 0's dx", "rank 1 is missing"),
        (gated(sum_y=nothing), "rank 0's y", "rank 1 is missing"),
        (gated(apart=True), "It is correct", "384 B are enough"),
        (gated(gate=False), "rank 0's dx", "serial program"),
    ],
    "19.attention_heads": [
        (lambda comm, qkv, heads: mine_of(comm, qkv), "rank 0's shard", "rows", "q, k and v"),
    ],
    "19.sequence_parallel": [
        (sequence(partial(gather, program=nothing)), "rank 0's positions in rank 1's block"),
        (sequence(lambda comm, x: x), "raised ValueError", "(6,8) (3,8)"),
        (sequence(reduced=nothing), "rank 0's y", "rank 1's block is missing"),
        (sequence(skip=0.0), "rank 0's y", "of x is missing"),
        (sequence(reduced=programs.ring_all_reduce), "It is correct", "768 B are enough"),
    ],
    "20.halo": [
        (halo(below=False), "On 2 ranks, rank 1's padded", "row 0", "rank 0 is missing"),
        (halo(above=False), "rank 0's padded", "row 7", "rank 1 is missing"),
        (halo(take=2), "rank 0's padded", "row 7", "not those"),
        (one_row_only, "On 4 ranks, rank 0's padded", "row 6", "rank 1"),
        (lambda comm, rows, width: rows, "rank 0's padded", "shape"),
    ],
    "20.halo_backward": [
        (halo_backward(below=False), "On 2 ranks, rank 1's d_rows", "row 0", "rank 0 is missing"),
        (halo_backward(own=0), "rank 0's d_rows", "row 5", "rank 0 is missing"),
        (halo_backward(times=2), "rank 0's d_rows", "row 5", "rank 1 counts 2 times"),
    ],
    "20.groups": [
        (lambda *given: colors(*given)[::-1], "rank 0's tensor group is 0 and 4"),
        (lambda rank, t, s: ("a", "b", "c"), "three colors"),
        (lambda rank, t, s: (rank, t), "rank 0", "three colors"),
    ],
    "20.hybrid_step": [
        (hybrid(lambda targets, data: 6), "On 2 ranks, rank 0's dw1", "replica 0 counts 2 times"),
        (hybrid(sum_weights=nothing), "rank 0's dw1", "of replica 1 is missing"),
        (hybrid(first=1), "rank 0's dw1", "micro-batch 0", "is missing"),
        (hybrid(sum_part=nothing), "rank 0's dw1"),
        (hybrid(sum_dx=nothing), "On 8 ranks, rank 0's dw1"),
        (lambda t, p, d, *given: hybrid()(d, p, t, *given), "On 2 ranks, rank 0's dw"),
    ],
}


@pytest.mark.parametrize("task", RIGHT)
def test_a_right_program_in_another_style_is_accepted(task):
    for answer in RIGHT[task]:
        assert check(task, answer), check(task, answer).text


@pytest.mark.parametrize("task", WRONG)
def test_a_wrong_program_is_refused_with_its_rank_and_piece(task):
    for answer, *words in WRONG[task]:
        refused(task, answer, *words)
