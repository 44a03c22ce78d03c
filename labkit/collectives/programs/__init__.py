"""One short program for each collective: read it, run it, animate it, start it under mpiexec.

Every program works in place on one array per rank and calls nothing but `comm` and numpy:

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)
>>> trace.outputs[0]
array([28., 32., 36., 40.])
"""

from labkit.collectives.programs.data_movement import (
    all_gather,
    all_to_all,
    barrier,
    broadcast,
    gather,
    naive_broadcast,
    scatter,
)
from labkit.collectives.programs.reductions import (
    double_binary_tree_all_reduce,
    hierarchical_all_reduce,
    naive_all_reduce,
    parameter_server_all_reduce,
    rabenseifner_all_reduce,
    recursive_doubling_all_reduce,
    reduce,
    reduce_scatter,
    ring_all_reduce,
    tree_all_reduce,
)

__all__ = [
    "ALL_REDUCES",
    "MEANING",
    "all_gather",
    "all_to_all",
    "barrier",
    "broadcast",
    "double_binary_tree_all_reduce",
    "gather",
    "hierarchical_all_reduce",
    "naive_all_reduce",
    "naive_broadcast",
    "parameter_server_all_reduce",
    "rabenseifner_all_reduce",
    "recursive_doubling_all_reduce",
    "reduce",
    "reduce_scatter",
    "ring_all_reduce",
    "scatter",
    "tree_all_reduce",
]

# Which collective each program is.
MEANING = {
    function.__name__: function.__name__.removeprefix("naive_")
    for function in (
        *(broadcast, naive_broadcast, reduce, scatter, gather),
        *(all_gather, reduce_scatter, all_to_all, barrier),
    )
}
ALL_REDUCES = (
    "naive_all_reduce",
    "parameter_server_all_reduce",
    "tree_all_reduce",
    "recursive_doubling_all_reduce",
    "rabenseifner_all_reduce",
    "ring_all_reduce",
    "hierarchical_all_reduce",
    "double_binary_tree_all_reduce",
)
MEANING |= dict.fromkeys(ALL_REDUCES, "all_reduce")
