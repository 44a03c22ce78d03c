"""Traces of all programs whose chunks are even, so that formulas must agree to the last digit."""

import math
from functools import cache

import numpy as np

from labkit import collectives
from labkit.collectives import programs
from labkit.collectives.formulas import FORMULAS

__all__ = ["CASES", "even_bytes", "traced"]

# Every program, and again with the options that change what it sends.
CASES = [
    *((name, ()) for name in FORMULAS),
    ("hierarchical_all_reduce", (("per_node", 4),)),
    ("double_binary_tree_all_reduce", (("pieces", 3),)),
    ("broadcast", (("root", 1),)),
    ("gather", (("root", 2),)),
]


def even_bytes(ranks, options):
    """So many bytes that every program can halve and cut them without a rest."""
    core = 1 << (ranks.bit_length() - 1)
    per_node = min(options.get("per_node", 2), ranks)
    nodes = ranks // per_node
    return 4 * math.lcm(ranks, core, per_node * nodes, 2 * options.get("pieces", 4))


@cache
def traced(name, ranks, options):
    """A run of the program on even_bytes bytes."""
    size = even_bytes(ranks, dict(options))
    inputs = [np.zeros(size, np.uint8) for _ in range(ranks)]
    return collectives.run(getattr(programs, name), inputs=inputs, **dict(options))
