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
from labkit.collectives.programs.double_tree import double_binary_tree_all_reduce
from labkit.collectives.programs.hierarchical import hierarchical_all_reduce
from labkit.collectives.programs.recursive_doubling import (
    rabenseifner_all_reduce,
    recursive_doubling_all_reduce,
)
from labkit.collectives.programs.reductions import (
    naive_all_reduce,
    parameter_server_all_reduce,
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
    "broadcast": "broadcast",
    "naive_broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "gather": "gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "barrier": "barrier",
    "naive_all_reduce": "all_reduce",
    "parameter_server_all_reduce": "all_reduce",
    "tree_all_reduce": "all_reduce",
    "recursive_doubling_all_reduce": "all_reduce",
    "rabenseifner_all_reduce": "all_reduce",
    "ring_all_reduce": "all_reduce",
    "hierarchical_all_reduce": "all_reduce",
    "double_binary_tree_all_reduce": "all_reduce",
}
ALL_REDUCES = tuple(name for name, meaning in MEANING.items() if meaning == "all_reduce")
