"""What each collective must leave behind, by numpy alone, and inputs that make this exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

REDUCING = {"all_reduce", "reduce", "reduce_scatter"}
OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum}
DTYPES = ["f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u4", "u8", "?"]


def exact_inputs(ranks, shape, dtype, seed=0):
    """Whole numbers so small that every order of adding or multiplying gives the same bits.

    Powers of two, half of them ones: 33 ranks of them overflow a half, to the same infinity.
    """
    numbers = np.random.default_rng(seed).choice([1, 1, 1, 2, -1], (ranks, *shape))
    return list(numbers.astype(dtype))


def total(inputs, op):
    stack = np.stack(inputs)
    function = OPS[op] if isinstance(op, str) else op
    with np.errstate(over="ignore", invalid="ignore"):
        return function.reduce(stack, axis=0, dtype=stack.dtype)


def wanted(meaning, inputs, *, op="sum", root=0):
    """(rank, elements as a slice, values) of everything that the collective promises."""
    ranks = len(inputs)
    flat = [array.reshape(-1) for array in inputs]
    ends = np.cumsum([0, *(len(chunk) for chunk in np.array_split(flat[0], ranks))])
    chunks = [slice(a, b) for a, b in pairwise(ends)]
    everything = slice(0, flat[0].size)
    everyone = range(ranks)
    match meaning:
        case "all_reduce":
            return [(r, everything, total(flat, op)) for r in everyone]
        case "reduce":
            return [(root, everything, total(flat, op))]
        case "reduce_scatter":
            return [(r, chunks[r], total(flat, op)[chunks[r]]) for r in everyone]
        case "broadcast":
            return [(r, everything, flat[root]) for r in everyone]
        case "scatter":
            return [(r, chunks[r], flat[root][chunks[r]]) for r in everyone]
        case "gather":
            return [(root, chunk, flat[q][chunk]) for q, chunk in enumerate(chunks)]
        case "all_gather":
            gathered = np.concatenate([flat[q][chunk] for q, chunk in enumerate(chunks)])
            return [(r, everything, gathered) for r in everyone]
        case "all_to_all":
            return [(r, chunks[q], flat[q][chunks[r]]) for r in everyone for q in everyone]
        case "barrier":
            return [(r, everything, flat[r]) for r in everyone]
    raise ValueError(meaning)


def assert_done(meaning, inputs, outputs, *, op="sum", root=0):
    for rank, elements, values in wanted(meaning, inputs, op=op, root=root):
        found = outputs[rank].reshape(-1)[elements]
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values, err_msg=f"{meaning}, rank {rank}, {elements}")
    assert [array.shape for array in outputs] == [array.shape for array in inputs]
