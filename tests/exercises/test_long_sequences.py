"""Lecture 46: its programs against loops and torch; answers in other styles; mistakes."""

import math

import numpy as np
import pytest

import labkit
from labkit.collectives import programs
from labkit.exercises import check
from labkit.exercises.judges.large_models import long_sequences
from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.exercises.cells import NEEDS_TORCH, cells_of, refused, under_mpi

CELLS = ("08", "23", "24", "34", "44", "62")
SHAPE = {"heads": 4, "key_heads": 2, "size": 3}


@pytest.fixture(scope="module")
def lecture():
    """The functions of the lecture, by name."""
    return cells_of("46", [f"sequence-{cell}" for cell in CELLS], labkit=labkit)


def by_loops(q, k, v, dout):
    """Causal attention and its gradients, a query and a key at a time, by the definitions."""
    out, dq, dk, dv = (np.zeros_like(one) for one in (q, q, k, v))
    (heads, positions, size), group = q.shape, len(q) // len(k)
    for head in range(heads):
        shared = head // group
        for i in range(positions):
            scores = [sum(q[head, i] * k[shared, j]) / math.sqrt(size) for j in range(i + 1)]
            exps = [math.exp(one) for one in scores]
            weights = [one / sum(exps) for one in exps]
            for j, w in enumerate(weights):
                out[head, i] += w * v[shared, j]
                dv[shared, j] += w * dout[head, i]
            of_weights = [sum(dout[head, i] * v[shared, j]) for j in range(i + 1)]
            for j, w in enumerate(weights):
                # d w_m / d score_j = w_m (1 if m = j else 0) − w_m w_j
                ds = sum(
                    of_weights[m] * (one * (m == j) - one * w) for m, one in enumerate(weights)
                ) / math.sqrt(size)
                dq[head, i] += ds * k[shared, j]
                dk[shared, j] += ds * q[head, i]
    return out, dq, dk, dv


def problem(positions, heads=4, key_heads=2, size=3):
    random = np.random.default_rng(positions)
    q, dout = random.normal(size=(2, heads, positions, size))
    return q, *random.normal(size=(2, key_heads, positions, size)), dout


def uneven(ranks, positions):
    """Parts of unequal length, with positions in no order."""
    random = np.random.default_rng(ranks)
    cuts = np.sort(random.choice(np.arange(1, positions), ranks - 1, replace=False))
    return np.split(random.permutation(positions), cuts)


def is_close(found, right):
    return np.shape(found) == right.shape and np.abs(found - right).max() < 1e-12 * len(right) * 10


def both_passes(lecture, comm, places, q, k, v, dout):
    part = lecture["my_part"](comm, places, q, k, v, dout)
    out, lse = lecture["ring_forward"](comm, *part[:3], places)
    return out, *lecture["ring_backward"](comm, *part[:3], out, lse, part[3], places)


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("kind", ["uneven", "contiguous", "zigzag", "striped"])
def test_ring_attention_and_its_gradients_are_those_of_loops(lecture, ranks, kind):
    given = problem(19)
    places = uneven(ranks, 19) if kind == "uneven" else lecture[kind](ranks, 19)
    right = by_loops(*given)
    trace, returned = lecture["run_on"](
        ranks, lambda comm: both_passes(lecture, comm, places, *given)
    )
    for mine, results in zip(places, returned, strict=True):
        for found, whole in zip(results, right, strict=True):
            assert is_close(found, whole[:, mine])
    lengths = [len(one) for one in places]
    arrays = 2 * SHAPE["key_heads"] * SHAPE["size"] * 8
    if ranks > 1:  # keys and values twice, without the right neighbour's, and all gradients
        wanted = [arrays * (3 * 19 - 2 * lengths[(r + 1) % ranks]) for r in range(ranks)]
        assert list(trace.bytes_sent) == wanted


ULYSSES = [(1, 2, 1), (2, 4, 2), (3, 6, 3), (4, 8, 2), (8, 8, 1), (5, 5, 5)]


@pytest.mark.parametrize(("ranks", "heads", "key_heads"), ULYSSES)
def test_ulysses_is_that_of_loops(lecture, ranks, heads, key_heads):
    given = problem(17, heads, key_heads)
    cuts = np.sort(np.random.default_rng(ranks).choice(range(1, 17), ranks - 1, replace=False))
    places = np.split(np.arange(17), cuts)

    def attend(q, k, v):
        hidden = np.triu(np.ones((17, 17), bool), 1)
        return lecture["finish"](lecture["add_block"](None, q, k, v, hidden))[0]

    def program(comm):
        part = lecture["my_part"](comm, places, *given[:3])
        return lecture["ulysses"](comm, *part, [len(one) for one in places], attend)

    _, returned = lecture["run_on"](ranks, program)
    assert is_close(np.concatenate(returned, axis=1), by_loops(*given)[0])


def test_the_judges_reference_is_that_of_loops():
    q, k, v, dout = problem(11)
    seen = np.tri(11, dtype=bool)
    found = (
        long_sequences.attention(q, k, v, seen)[0],
        *long_sequences.gradients(q, k, v, dout, seen),
    )
    assert all(map(is_close, found, by_loops(q, k, v, dout)))


@pytest.mark.parametrize("kind", ["zigzag", "uneven"])
def test_under_mpi_and_in_processes_ranks_compute_what_one_does(lecture, kind):
    given = problem(14, heads=6, key_heads=3)
    places = uneven(3, 14) if kind == "uneven" else lecture[kind](3, 14)
    in_order = np.split(np.arange(14), [2, 9])  # for Ulysses
    hidden = ~np.tri(14, dtype=bool)
    right = by_loops(*given)

    def wanted(rank):
        parts = [whole[:, places[rank]] for whole in right] + [right[0][:, in_order[rank]]]
        return np.concatenate([one.ravel() for one in parts])

    def attend(q, k, v):
        return lecture["finish"](lecture["add_block"](None, q, k, v, hidden))[0]

    def program(comm, buffer):
        results = both_passes(lecture, comm, places, *given)
        part = lecture["my_part"](comm, in_order, *given[:3])
        by_heads = lecture["ulysses"](comm, *part, [2, 7, 5], attend)
        buffer[:] = np.concatenate([one.ravel() for one in (*results, by_heads)])

    def in_a_process(rank):
        buffer = np.zeros(wanted(rank).shape)
        program(labkit.cluster.communicator(), buffer)
        return buffer

    with labkit.cluster(ranks=3) as processes:
        found = processes.run(in_a_process, timeout=60)
    assert all(is_close(one, wanted(rank)) for rank, one in enumerate(found))
    found = under_mpi(program, [np.zeros(wanted(rank).shape) for rank in range(3)])
    assert all(is_close(one, wanted(rank)) for rank, one in enumerate(found))


@NEEDS_TORCH
def test_the_gradients_are_those_of_torchs_attention(lecture):
    given = problem(23)

    def torchs(_, *given):
        import torch

        q, k, v, dout = (torch.tensor(one)[None] for one in given)
        for one in (q, k, v):
            one.requires_grad_()
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        out.backward(dout)
        return [one[0].numpy() for one in (out.detach(), q.grad, k.grad, v.grad)]

    with cluster("torch", 1) as c:
        right = c.run(torchs, *given, timeout=TIMEOUT, show=False)[0]
    places = lecture["zigzag"](4, 23)
    _, returned = lecture["run_on"](4, lambda comm: both_passes(lecture, comm, places, *given))
    for mine, results in zip(places, returned, strict=True):
        assert all(is_close(one, whole[:, mine]) for one, whole in zip(results, right, strict=True))
    assert all(map(is_close, by_loops(*given), right))


@NEEDS_TORCH
def test_torchs_own_ring_attention_computes_the_same(lecture):
    """Its template, which context_parallel uses on GPUs, with the flash attention of a CPU."""
    given = [one.astype(np.float32) for one in problem(24, heads=2)]
    places = lecture["zigzag"](3, 24)
    parts = [[np.ascontiguousarray(one[None][:, :, mine]) for one in given] for mine in places]

    def torchs(rank, parts):
        import datetime as dt

        import torch
        import torch.distributed as dist
        from torch.distributed.tensor.experimental._context_parallel import _attention as ring

        q, k, v, dout = (torch.tensor(one) for one in parts[rank])
        dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
        on, flash = dist.group.WORLD, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        out, lse = ring._templated_ring_attention(on, 2, flash, q, k, v, is_causal=True)
        gradients = ring._templated_ring_attention_backward(
            on, 2, back, dout, "grad_out", q, k, v, out, lse, True, dropout_p=0.0
        )
        found = [one[0].numpy() for one in (out, *gradients[:3])]
        dist.destroy_process_group()
        return found

    with cluster("torch", 3) as c:
        theirs = c.run(torchs, parts, timeout=TIMEOUT, show=False)
    _, ours = lecture["run_on"](3, lambda comm: both_passes(lecture, comm, places, *given))
    for mine, found in zip(ours, theirs, strict=True):
        for one, other in zip(mine, found, strict=True):
            assert np.abs(one - other).max() < 1e-6 * max(1, np.abs(other).max())


# Right answers in other styles.


def in_lists(blocks):
    """Each row on its own, in float64."""
    sums = None
    for scores, v in blocks:
        if sums is None:
            sums = [[-math.inf, 0.0, np.zeros(v.shape[1])] for _ in scores]
        for row, one in zip(scores.astype(float), sums, strict=True):
            for score, value in zip(row, v, strict=True):
                if score > one[0]:
                    one[1:] = one[1] * math.exp(one[0] - score), one[2] * math.exp(one[0] - score)
                    one[0] = score
                if score > -math.inf:
                    one[1] += math.exp(score - one[0])
                    one[2] = one[2] + math.exp(score - one[0]) * value
    return np.array([out / total for _, total, out in sums], np.float32)


def merging_blocks(blocks):
    """Finished outputs and their log-sums."""
    out, lse = 0, -np.inf
    for scores, v in blocks:
        top = np.maximum(scores.max(1, keepdims=True), np.float32(-1e30))
        weights = np.exp(scores - top)
        total = weights.sum(1, keepdims=True)
        with np.errstate(divide="ignore"):
            own = top + np.log(total)
        new = np.logaddexp(lse, own)
        share = np.where(np.isinf(own), 0, np.exp(own - new))
        before = np.where(np.isinf(lse), 0, np.exp(lse - np.where(np.isinf(new), 0, new)))
        out = out * before + share * (weights @ v / np.maximum(total, 1e-30))
        lse = new
    return out


def merge_by_maximum(out1, lse1, out2, lse2):
    top = np.maximum(lse1, lse2)
    a, b = np.exp(lse1 - top), np.exp(lse2 - top)
    return (a * out1 + b * out2) / (a + b), top + np.log(a + b)


def backwards(q, k, v, size, add_block):
    """The last block first."""
    state, at = None, np.arange(q.shape[1])
    for keys in reversed(np.split(at, range(size, len(at), size))):
        hidden = ~(keys[None] <= at[:, None])
        state = add_block(state, q, k[:, keys], v[:, keys], hidden)
    return state


def packed_ring(comm, q, k, v, places, add_block):
    """Lowercase send and recv, and the other way round."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    mine, state = (k, v, places[rank]), None
    for hop in range(ranks):
        state = add_block(state, q, *mine[:2], ~(mine[2] <= places[rank][:, None]))
        if hop + 1 < ranks:
            if rank % 2:
                came = comm.recv(source=(rank + 1) % ranks)
                comm.send(mine, dest=rank - 1)
            else:
                request = comm.isend(mine, dest=(rank - 1) % ranks)
                came = comm.recv(source=(rank + 1) % ranks)
                request.wait()
            mine = came
    return state


def gathered(comm, q, k, v, places, add_block):
    state, mine = None, places[comm.Get_rank()][:, None]
    for one, keys in zip(comm.allgather((k, v)), places, strict=True):
        state = add_block(state, q, *one, keys > mine)
    return state


def gradients_home_at_once(comm, k, v, places, block):
    """All keys gathered, and the gradients in one all-to-all."""
    mine = places[comm.Get_rank()][:, None]
    found = [block(*one, keys > mine)
             for one, keys in zip(comm.allgather((k, v)), places, strict=True)]  # fmt: skip
    dk, dv = (sum(comm.alltoall([one[n] for one in found])) for n in (1, 2))
    return [sum(one[0] for one in found), dk, dv]


def own_term_last(comm, k, v, places, block):
    """Gradients in p − 1 hops: the own term stays, and the travel begins at the neighbour."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    mine, gradient = places[rank][:, None], None
    dq, *home = block(k, v, places[rank] > mine)
    for hop in range(1, ranks):
        k, v, gradient = comm.sendrecv((k, v, gradient), dest=right, source=left)
        more, *terms = block(k, v, places[(rank - hop) % ranks] > mine)
        dq = dq + more
        gradient = (
            terms if gradient is None else [a + b for a, b in zip(gradient, terms, strict=True)]
        )
    if ranks > 1:
        gradient = comm.sendrecv(gradient, dest=right, source=left)
        home = [a + b for a, b in zip(home, gradient, strict=True)]
    return dq, home


def by_einsum(q, k, v, out, lse, dout, hidden):
    scale = 1 / math.sqrt(q.shape[2])
    p = np.exp(np.where(hidden, -np.inf, np.einsum("hid,hjd->hij", q, k) * scale) - lse)
    ds = p * (np.einsum("hid,hjd->hij", dout, v) - np.einsum("hid,hid->hi", dout, out)[..., None])
    return [
        np.einsum("hij,hjd->hid", ds, k) * scale,
        np.einsum("hij,hid->hjd", ds, q) * scale,
        np.einsum("hij,hid->hjd", p, dout),
    ]


def mirrored(ranks, positions):
    """Chunks from both ends, as lists, in another order of the ranks."""
    size = positions // (2 * ranks)
    chunk = [list(range(n * size, (n + 1) * size)) for n in range(2 * ranks)]
    return [chunk[2 * ranks - 1 - r] + chunk[r] for r in reversed(range(ranks))]


def ulysses_by_all_to_all(comm, q, k, v, lengths, attention):
    """One all-to-all for q, k and v; the way back with sends to each rank."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    parts = zip(*(np.split(one, ranks) for one in (q, k, v)), strict=True)
    arrived = zip(*comm.alltoall(list(parts)), strict=True)
    out = attention(*(np.concatenate(one, axis=1) for one in arrived))
    first = np.cumsum([0, *lengths])
    pieces = [out[:, first[r] : first[r + 1]] for r in range(ranks)]
    requests = [comm.isend(one, dest=r) for r, one in enumerate(pieces) if r != rank]
    found = [pieces[r] if r == rank else comm.recv(source=r) for r in range(ranks)]
    for one in requests:
        one.wait()
    return np.concatenate(found)


RIGHT = {
    "46.softmax_blocks": [in_lists, merging_blocks],
    "46.merged": [merge_by_maximum],
    "46.causal_blocks": [backwards],
    "46.block_gradients": [by_einsum],
    "46.ring": [packed_ring],
    "46.ring_backward": [gradients_home_at_once, own_term_last],
    "46.zigzag": [mirrored],
    "46.ulysses": [ulysses_by_all_to_all],
    "46.key_heads": [lambda rank, ranks, heads, key_heads: [
        *dict.fromkeys(h * key_heads // heads
                       for h in range(heads * rank // ranks, heads * (rank + 1) // ranks))]],
}  # fmt: skip


@pytest.mark.parametrize("task", RIGHT)
def test_a_right_answer_in_another_style_is_accepted(task):
    for answer in RIGHT[task]:
        outcome = check(task, answer)
        assert outcome, outcome.text


# Wrong ones, beyond those of the tasks.


def all_at_once(comm, q, k, v, places, add_block):
    k, v = (np.concatenate(comm.allgather(one), axis=1) for one in (k, v))
    keys = np.concatenate(places)
    return add_block(None, q, k, v, keys > places[comm.Get_rank()][:, None])


def own_positions(comm, q, k, v, places, add_block):
    rank, ranks, state = comm.Get_rank(), comm.Get_size(), None
    for _ in range(ranks):
        mine = places[rank]
        state = add_block(state, q, k, v, mine > mine[:, None])
        k, v = comm.sendrecv((k, v), dest=(rank + 1) % ranks, source=(rank - 1) % ranks)
    return state


def all_heads_reduced(comm, k, v, places, block):
    """An all-reduce of gradients that belong to different keys."""
    mine = places[comm.Get_rank()][:, None]
    dq, dk, dv = block(k, v, places[comm.Get_rank()] > mine)
    programs.ring_all_reduce(comm, dk)
    programs.ring_all_reduce(comm, dv)
    return dq, dk, dv


def returned_to_the_left(comm, k, v, places, block):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    mine = places[rank][:, None]
    found = [block(*one, keys > mine)
             for one, keys in zip(comm.allgather((k, v)), places, strict=True)]  # fmt: skip
    turned = [found[(r + 1) % ranks] for r in range(ranks)]
    sums = [sum(comm.alltoall([one[n] for one in turned])) for n in (1, 2)]
    return [sum(one[0] for one in found), *sums]


def not_causal(comm, k, v, places, block):
    return block(k, v, np.zeros((k.shape[1], k.shape[1]), bool))


def sequence_of_heads(comm, q, k, v, lengths, attention):
    """The output keeps this rank's heads of all positions in the wrong order."""
    ranks = comm.Get_size()
    heads = [np.concatenate(comm.alltoall(np.split(one, ranks)), 1) for one in (q, k, v)]
    parts = np.split(attention(*heads), np.cumsum(lengths)[:-1], axis=1)
    return np.stack(comm.alltoall(parts), axis=1).reshape(q.shape)


WRONG = {
    "46.ring": [
        (gathered, "It is correct. But", "p − 1 hops"),
        (all_at_once, "add_block got 18 keys, of more than one rank"),
        (own_positions, "the mask takes this rank's positions for the keys of every block"),
        (lambda *given: None, "Return the state that the last add_block gave"),
    ],
    "46.causal_blocks": [(lambda *given: None, "Return the state that the last add_block gave")],
    "46.softmax_blocks": [
        (lambda blocks: None, "the output has the shape ()"),
        (lambda blocks: np.zeros((5, 3)), "from the serial one"),
        (lambda blocks: sum(long_sequences.attention_of(*one) for one in blocks) / 3, "mean of"),
    ],
    "46.ring_backward": [
        (all_heads_reduced, "rank 0's dq is wrong: the contribution of rank 1's keys is missing"),
        (returned_to_the_left, "it is the gradient of rank 1's keys", "the last hop"),
        (not_causal, "wrong mask"),
    ],
    "46.ulysses": [(sequence_of_heads, "position", "should be")],
    "46.zigzag": [
        (lambda ranks, positions: [np.arange(positions)] * ranks, "some are there twice"),
        (lambda ranks, positions: [np.arange(positions)], "it returned 1 parts"),
        (lambda ranks, positions: None, "return a list with the positions of each rank"),
    ],
    "46.block_gradients": [(lambda *given: None, "Return dq, dk and dv.")],
    "46.merged": [(lambda *given: 1, "return out and lse")],
}


@pytest.mark.parametrize("task", WRONG)
def test_a_wrong_answer_is_refused_by_its_mistake(task):
    for answer, *words in WRONG[task]:
        refused(task, answer, *words)
