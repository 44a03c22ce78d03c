"""Tensor, sequence, spatial and hybrid programs: what is wrong is named by rank and piece."""

import numpy as np
import pytest

from labkit.collectives import programs
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


def backward(sum_part=all_reduce, sum_dy=nothing, order=reversed):
    def program(comm, dy, blocks):
        gradients = {}
        for number in order(range(len(blocks))):
            part, gradients[number] = blocks[number](dy)
            dy = sum_dy(comm, dy + sum_part(comm, part))
        return dy, [gradients[number] for number in range(len(blocks))]

    return program


def only_the_last_all_reduce_is_missing(comm, dy, blocks):
    gradients = []
    for number, block in reversed(list(enumerate(blocks))):
        part, of_weights = block(dy)
        gradients.insert(0, of_weights)
        dy = dy + (all_reduce(comm, part) if number else part)
    return dy, gradients


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


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("19.column_parallel", column(by_hand)),
        ("19.column_parallel", column(lambda c, a: all_reduce(c, a, programs.tree_all_reduce))),
        ("19.attention_heads", by_index),
        ("19.backward", backward(by_hand)),
        ("19.sequence_parallel", sequence(reduced=direct)),
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
        ("19.column_parallel", column(sum_dw=all_reduce), ["rank 0's dw", "rank 1", "must not be"]),
        ("19.column_parallel", column(lambda c, a: 3), ["rank 0's dx", "shape ()", "(5, 7)"]),
        ("19.column_parallel", lambda c, x, w, dy: x @ w, ["rank 0", "y, dx, dw"]),
        ("19.column_parallel", lambda c, x, w, dy: x @ w.T @ w, ["rank 0 raised ValueError"]),
        ("19.attention_heads", cut, ["rank 0's shard", "k of head 0"]),
        ("19.backward", backward(nothing), ["rank 0's argument of blocks[1]", "rank 1 is missing"]),
        ("19.backward", backward(nothing, all_reduce), ["blocks[1]", "dy itself counts 2 times"]),
        ("19.backward", backward(order=iter), ["argument of blocks[0]"]),
        (
            "19.backward",
            only_the_last_all_reduce_is_missing,
            ["rank 0's dx", "rank 1 is missing"],
        ),
        (
            "19.sequence_parallel",
            sequence(lambda comm, x: gather(comm, x, nothing)),
            ["rank 0's argument of block", "position 6", "rank 1 is missing"],
        ),
        (
            "19.sequence_parallel",
            sequence(lambda comm, x: x),
            ["argument of block", "shape (6, 5)"],
        ),
        ("19.sequence_parallel", sequence(reduced=nothing), ["rank 0's y", "rank 1 is missing"]),
        ("19.sequence_parallel", sequence(skip=0.0), ["rank 0's y", "of x is missing"]),
        (
            "19.sequence_parallel",
            sequence(reduced=programs.ring_all_reduce),
            ["It is correct", "720 B", "480 B are enough"],
        ),
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
