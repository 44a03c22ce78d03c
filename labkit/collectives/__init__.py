"""Programs of N ranks that exchange messages: run here, then drawn, proved, timed and compared.

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)
>>> trace.steps, bool(trace.check("all_reduce"))
(6, True)
"""

from labkit.collectives import bench, programs, topology
from labkit.collectives.costs import cost, crossover, overlap
from labkit.collectives.formulas import formula
from labkit.collectives.trace import Trace, run, run_mpi
