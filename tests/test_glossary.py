"""The glossary holds the definitions of the lectures, and all terms that the course must have."""

import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
sys.path.append(str(NOTEBOOKS))  # what lectures write there has names of other modules
import glossary  # noqa: E402

REQUIRED = """
throughput, overhead, critical path, straggler, latency-bound, bandwidth-bound, overlap,
gradient accumulation, mixed precision, data parallelism, model parallelism, pipeline
parallelism, tensor parallelism, spatial parallelism, hybrid parallelism, micro-batch, bubble,
sharding, replica, rank, world size, chief, barrier, race condition, convergence, divergence,
staleness, checkpoint, job, submit, allocation, grouped-query attention, online softmax, context
parallelism, ring attention, zigzag placement, expert parallelism, router, capacity, dropped token,
stochastic rounding, error feedback, local update
"""


def test_the_glossary_holds_the_definitions_of_the_lectures():
    assert glossary.is_current(), "python notebooks/glossary.py"


def test_every_term_that_the_course_must_introduce_is_defined():
    assert set(" ".join(REQUIRED.split()).split(", ")) <= set(glossary.definitions())
