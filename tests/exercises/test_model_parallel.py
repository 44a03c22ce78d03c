"""Tensor, sequence, spatial and hybrid programs: what is wrong is named by rank and piece."""

from functools import partial

import numpy as np
import pytest

from labkit.collectives import programs, run
from labkit.collectives.messages import PROC_NULL
from labkit.exercises import check
from labkit.exercises.judges.model_parallel import sends_before
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


def column(sum_dx):
    def program(comm, x, w, dy):
        return x @ w, sum_dx(comm, dy @ w.T), x.T @ dy

    return program


def gated(comm, x, w1, w2, w3, dy):
    a, b, d = x @ w1, x @ w2, dy @ w3.T
    part = (d * b * (a > 0)) @ w1.T + (d * np.maximum(a, 0)) @ w2.T
    return by_hand(comm, (np.maximum(a, 0) * b) @ w3), by_hand(comm, part)


def gated_at_once(comm, x, w1, w2, w3, dy):
    """One matrix of gate and up, and one all-reduce of both results, which stay stacked."""
    a, b = np.split(x @ np.concatenate([w1, w2], axis=1), 2, axis=1)
    d = dy @ w3.T
    dx = np.concatenate([d * b * (a > 0), d * np.maximum(a, 0)], 1) @ np.concatenate([w1.T, w2.T])
    return all_reduce(comm, np.stack([(np.maximum(a, 0) * b) @ w3, dx]))


def mine_of(comm, whole):
    return np.split(whole, comm.Get_size())[comm.Get_rank()]


def sequence(comm, x, block):
    part = block(gather_by_hand(comm, x))
    programs.reduce_scatter(comm, part)
    return x + mine_of(comm, part)


def packed(comm, x, block):
    part = block(np.concatenate(comm.allgather(x)))
    programs.ring_all_reduce(comm, part)
    return x + mine_of(comm, part)


def by_index(comm, qkv, heads):
    size = qkv.shape[1]
    return qkv.reshape(3, comm.Get_size(), -1, size)[:, comm.Get_rank()].reshape(-1, size)


def shifted(comm, top, bottom, into_above, into_below):
    """Two Sendrecv along a chain of ranks: `top` goes up, `bottom` goes down."""
    up = comm.Get_rank() - 1 if comm.Get_rank() else PROC_NULL
    down = comm.Get_rank() + 1 if comm.Get_rank() + 1 < comm.Get_size() else PROC_NULL
    comm.Sendrecv(bottom, dest=down, recvbuf=into_above, source=up)
    comm.Sendrecv(top, dest=up, recvbuf=into_below, source=down)


def halo(comm, rows, width):
    padded = np.zeros((len(rows) + 2 * width, *rows.shape[1:]))
    padded[width:-width] = rows
    shifted(comm, rows[:width], rows[-width:], padded[:width], padded[-width:])
    return padded


def one_row_only(comm, rows, width):
    return np.pad(halo(comm, rows, 1), ((width - 1, width - 1), (0, 0), (0, 0)))


def halo_by_ring(comm, rows, width, drop=True):
    """The first and the last rank exchange rows, too, and drop them."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    above, below = np.zeros((2, width, *rows.shape[1:]))
    up, down = (rank - 1) % ranks, (rank + 1) % ranks
    comm.Sendrecv(rows[-width:], dest=down, recvbuf=above, source=up)
    comm.Sendrecv(rows[:width], dest=up, recvbuf=below, source=down)
    above *= rank > 0 or not drop
    below *= rank + 1 < ranks or not drop
    return np.concatenate([above, rows, below])


def halo_backward(comm, d_padded, width):
    d_rows, received = d_padded[width:-width], np.zeros((2, width, *d_padded.shape[1:]))
    shifted(comm, d_padded[:width], d_padded[-width:], received[0], received[1])
    d_rows[:width] += received[0]
    d_rows[-width:] += received[1]
    return d_rows


def colors(rank, tensor, stages):
    group = rank // tensor
    return group, group // stages * tensor + rank % tensor, rank % (tensor * stages)


def neighbours(rank, hosts):
    """How many ranks of its host are before this one."""
    return sum(hosts[other] == hosts[rank] for other in range(rank))


def data_groups_inside(rank, hosts):
    place = neighbours(rank, hosts)
    return place // 2, place % 2 + 2 * hosts[rank]


RIGHT = {
    "42.column_parallel": [column(by_hand), column(lambda comm, array: comm.allreduce(array))],
    "42.gated_mlp": [gated, gated_at_once],
    "42.attention_heads": [by_index, lambda *given: [*by_index(*given)]],
    "42.sequence_parallel": [sequence],
    "43.halo": [halo, halo_by_ring],
    "43.halo_backward": [halo_backward],
    "43.groups": [colors, lambda rank, t, s: [99 - one for one in colors(rank, t, s)]],
    "43.on_which_link": [lambda rank, hosts: (7 - hosts[rank], 9 + neighbours(rank, hosts))],
}
WRONG = {
    "42.sequence_parallel": [(packed, "It is correct")],
    "43.halo": [
        (one_row_only, "On 4 ranks, rank 0's padded", "row 8 is zeros", "row 1 of rank 1"),
        (
            partial(halo_by_ring, drop=False),
            "On 2 ranks, rank 0's padded",
            "is row 7 of rank 1, and should be zeros",
        ),
    ],
    "43.on_which_link": [
        (data_groups_inside, "tensor group 0, 1, 4 and 5 crosses the link", "the kernel counted"),
        (lambda rank, hosts: (rank // 4, rank % 4), "tensor group 0, 1, 2 and 3 crosses the link"),
        (
            lambda rank, hosts: (hosts[rank], rank % 4),
            "the data group 0 and 4",
            "different weights",
        ),
    ],
}


@pytest.mark.parametrize("task", RIGHT)
def test_a_right_program_in_another_style_is_accepted(task):
    for answer in RIGHT[task]:
        outcome = check(task, answer)
        if outcome.state == "elsewhere":
            pytest.skip(outcome.text)
        assert outcome, outcome.text


@pytest.mark.parametrize("task", WRONG)
def test_a_wrong_program_is_refused_with_its_rank_and_piece(task):
    for answer, *words in WRONG[task]:
        refused(task, answer, *words)


def test_what_a_sendrecv_sends_is_sent_before_it_receives():
    def exchange(comm, x):
        other = 1 - comm.Get_rank()
        comm.Sendrecv(x.copy(), other, recvbuf=x, source=other)

    assert sends_before(run(exchange, ranks=2), 0, 1) == [1]
