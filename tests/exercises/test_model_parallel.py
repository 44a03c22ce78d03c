"""Tensor, sequence, spatial and hybrid programs: what is wrong is named by rank and piece."""

from functools import partial

import numpy as np
import pytest

from labkit.collectives import programs, run
from labkit.collectives.messages import PROC_NULL
from labkit.exercises import check
from labkit.exercises.judges.model_parallel import sends_before
from tests.exercises.cells import changed, refused


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


def gated_at_once(comm, x, w1, w2, w3, dy):
    """One matrix of gate and up, and one all-reduce of both results, which stay stacked."""
    a, b = np.split(x @ np.concatenate([w1, w2], axis=1), 2, axis=1)
    d = dy @ w3.T
    dx = np.concatenate([d * b * (a > 0), d * np.maximum(a, 0)], 1) @ np.concatenate([w1.T, w2.T])
    return all_reduce(comm, np.stack([(np.maximum(a, 0) * b) @ w3, dx]))


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
    size = qkv.shape[1]
    return qkv.reshape(3, comm.Get_size(), -1, size)[:, comm.Get_rank()].reshape(-1, size)


def shifted(comm, top, bottom, above, below, into_above, into_below):
    """Two Sendrecv along a chain of ranks: `top` goes up, `bottom` goes down."""
    up = comm.Get_rank() - 1 if comm.Get_rank() else PROC_NULL
    down = comm.Get_rank() + 1 if comm.Get_rank() + 1 < comm.Get_size() else PROC_NULL
    if below:
        comm.Sendrecv(bottom, dest=down, recvbuf=into_above, source=up)
    if above:
        comm.Sendrecv(top, dest=up, recvbuf=into_below, source=down)


def halo(above=True, below=True):
    def program(comm, rows, width):
        padded = np.zeros((len(rows) + 2 * width, *rows.shape[1:]))
        padded[width:-width] = rows
        into = padded[:width], padded[-width:]
        shifted(comm, rows[:width], rows[-width:], above, below, *into)
        return padded

    return program


def one_row_only(comm, rows, width):
    return np.pad(halo()(comm, rows, 1), ((width - 1, width - 1), (0, 0), (0, 0)))


def halo_by_ring(comm, rows, width):
    """The first and the last rank exchange rows, too, and drop them."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    above, below = np.zeros((2, width, *rows.shape[1:]))
    up, down = (rank - 1) % ranks, (rank + 1) % ranks
    comm.Sendrecv(rows[-width:], dest=down, recvbuf=above, source=up)
    comm.Sendrecv(rows[:width], dest=up, recvbuf=below, source=down)
    above *= rank > 0
    below *= rank + 1 < ranks
    return np.concatenate([above, rows, below])


def whole_image(comm, rows, width):
    """Every rank sends every other one all its rows."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    shares = np.array_split(np.zeros((17, *rows.shape[1:])), ranks)
    requests = []
    for other in range(ranks):
        if other != rank:
            requests.append(comm.Isend(rows, dest=other))
            requests.append(comm.Irecv(shares[other], source=other))
    for request in requests:
        request.Wait()
    shares[rank][:] = rows
    image = np.pad(np.concatenate(shares), ((width, width), (0, 0), (0, 0)))
    return image[sum(map(len, shares[:rank])) :][: len(rows) + 2 * width]


def whole_gradient(comm, d_padded, width):
    """The padded gradient goes to both neighbours as a whole."""
    rank = comm.Get_rank()
    sizes = [len(one) + 2 * width for one in np.array_split(range(17), comm.Get_size())]
    d_rows, requests, received = d_padded[width:-width].copy(), [], {}
    for other in {rank - 1, rank + 1} & set(range(comm.Get_size())):
        received[other] = np.zeros((sizes[other], *d_padded.shape[1:]))
        requests.append(comm.Isend(d_padded, dest=other))
        requests.append(comm.Irecv(received[other], source=other))
    for request in requests:
        request.Wait()
    if rank - 1 in received:
        d_rows[:width] += received[rank - 1][-width:]
    if rank + 1 in received:
        d_rows[-width:] += received[rank + 1][:width]
    return d_rows


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


def neighbours(rank, hosts):
    """How many ranks of its host are before this one."""
    return sum(hosts[other] == hosts[rank] for other in range(rank))


def data_groups_inside(rank, hosts):
    place = neighbours(rank, hosts)
    return place // 2, place % 2 + 2 * hosts[rank]


STEP = partial(changed, "20.hybrid_step")
REDUCED = "        programs.ring_all_reduce(tensor, part)\n"
RECEIVED = "            pipeline.Recv(x, source=stage - 1)\n"
BACKWARD = "    for (x, hidden, y), target in zip(kept, targets):\n"
AT_ONCE = "        (x, hidden, y), target = kept[-1], targets[len(kept) - 1]\n"
AVERAGED = "    programs.ring_all_reduce(data, dw1)\n    programs.ring_all_reduce(data, dw2)\n"

RIGHT = {
    "19.column_parallel": [column(by_hand), column(lambda comm, array: comm.allreduce(array))],
    "19.gated_mlp": [gated(by_hand), gated_at_once],
    "19.attention_heads": [by_index],
    "19.sequence_parallel": [sequence(gather_by_hand)],
    "20.halo": [halo(), halo_by_ring],
    "20.halo_backward": [halo_backward()],
    "20.groups": [colors, lambda rank, t, s: [99 - one for one in colors(rank, t, s)]],
    "20.on_which_link": [lambda rank, hosts: (7 - hosts[rank], 9 + neighbours(rank, hosts))],
}
WRONG = {
    "19.column_parallel": [
        (column(nothing), "rank 0's dx", "rank 1 is missing"),
        (column(rank_0_only), "rank 1's dx", "rank 0 is missing"),
        (column(mean), "rank 0's dx", "each contribution counts 0.5 times"),
        (column(lambda comm, array: array * np.nan), "rank 0's dx"),
        (column(sum_dw=all_reduce), "rank 0's dw", "no communication"),
    ],
    "19.gated_mlp": [
        (gated(sum_dx=nothing), "rank 0's dx", "rank 1 is missing"),
        (gated(apart=True), "It is correct", "320 B are enough"),
        (gated(gate=False), "rank 0's dx", "relu passes a gradient only"),
    ],
    "19.attention_heads": [
        (
            lambda comm, qkv, heads: mine_of(comm, qkv),
            "rank 0's shard",
            "in rows 4",
            "the same heads of q, k and v",
        ),
    ],
    "19.sequence_parallel": [
        (sequence(partial(gather, program=nothing)), "rank 0's positions in rank 1's block"),
        (sequence(lambda comm, x: x), "raised ValueError", "whole has (6, 8): all-gather"),
        (sequence(reduced=nothing), "rank 0's y", "rank 1's block is missing"),
        (sequence(skip=0.0), "rank 0's y", "of x is missing"),
        (sequence(reduced=programs.ring_all_reduce), "It is correct", "384 B are enough"),
    ],
    "20.halo": [
        (halo(below=False), "On 2 ranks, rank 1's padded", "row 0", "rank 0 is missing"),
        (one_row_only, "On 4 ranks, rank 0's padded", "row 8", "rank 1 is missing"),
        (whole_image, "It is correct", "sends 3.02 kB; 672 B are enough"),
    ],
    "20.halo_backward": [
        (halo_backward(below=False), "On 2 ranks, rank 1's d_rows", "row 0", "rank 0 is missing"),
        (halo_backward(times=2), "rank 0's d_rows", "row 8", "rank 1 counts 2 times"),
        (whole_gradient, "It is correct", "672 B are enough"),
    ],
    "20.groups": [
        (lambda *given: colors(*given)[::-1], "rank 0's tensor group is 0 and 4"),
        (lambda rank, t, s: (rank, t), "rank 0", "return colors for tensor, pipeline, data"),
        (lambda *given: [one + 0.5 for one in colors(*given)], "divide with //"),
        (
            changed("20.groups", "stage * tensor + part", "stage * stages + part"),
            "tensor=3, stages=2: rank 2's data group is 2, 3, 8 and 9, and must be 2 and 8",
        ),
    ],
    "20.on_which_link": [
        (data_groups_inside, "tensor group 0, 1, 4 and 5 crosses the link", "the kernel counted"),
        (lambda rank, hosts: (rank // 4, rank % 4), "tensor group 0, 1, 2 and 3 crosses the link"),
        (
            lambda rank, hosts: (hosts[rank], rank % 4),
            "the data group 0 and 4",
            "different weights",
        ),
    ],
    "20.hybrid_step": [
        (
            STEP("targets.shape[0] * ", ""),
            "On 2 ranks, rank 0's dw1",
            "contribution counts 3 times",
        ),
        (STEP("(data, dw", "(tensor, dw"), "over the data group"),
        (STEP(AVERAGED, ""), "rank 0's dw1", "over the data group"),
        (STEP("dw1 += x", "dw1 = x"), "rank 0's dw1", "micro-batch 0", "is missing"),
        (STEP(f"{REDUCED}        kept", "        kept"), "rank 0's dw1", "over the tensor group"),
        (STEP(f"{REDUCED}        if", "        if"), "On 8 ranks, rank 0's dw1"),
        (STEP("(tensor, pipeline, data,", "(data, pipeline, tensor,"), "On 2 ranks, rank 0's dw"),
        (STEP(BACKWARD, AT_ONCE), "It is correct", "rank 0", "1 micro-batches before"),
        (
            STEP(
                RECEIVED,
                f"{RECEIVED}        kept.append(x)\n    received, kept = kept, []\n"
                "    for x in received:\n",
            ),
            "It is correct",
            "rank 2 sends nothing before it has received all",
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
