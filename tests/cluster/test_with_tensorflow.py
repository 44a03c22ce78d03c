"""TensorFlow in ranks: really several workers, warm from the second run, and honest about faults.

No TensorFlow is loaded in this process.
"""

import linecache
import os
import sys
import types

import pytest

import labkit


@pytest.fixture(scope="module")
def two():
    with labkit.cluster(ranks=2, start=180) as c:
        yield c


def all_reduced(tf):
    """A step that adds up 1 of each worker."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def one():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.constant(1.0))

        return strategy.run(one)

    return step


def test_workers_meet_and_find_loaded_what_the_program_and_its_rooms_need(two):
    def sums(rank):
        loaded = "tensorflow" in sys.modules and "keras" in sys.modules
        import tensorflow as tf

        return loaded, float(all_reduced(tf)())

    def loaded(rank):
        from labkit import strategies  # noqa: F401

        return "tensorflow" in sys.modules

    before = "tensorflow" in sys.modules
    for _ in range(2):
        assert two.run(sums, timeout=120) == [(True, 2.0), (True, 2.0)]
    assert two.run(loaded, timeout=120) == [True, True]
    assert ("tensorflow" in sys.modules) == before


def test_a_worker_that_is_killed_is_the_cause_and_not_the_one_that_notices(two):
    def dies(rank):
        import tensorflow as tf

        step = all_reduced(tf)
        for number in range(10_000):
            step()
            if rank == 1 and number == 20:
                os.kill(os.getpid(), 9)

    outcome = two.start(dies, show=False).finish(timeout=120)
    assert str(outcome.fault).startswith("Rank 1 was killed by signal 9 (SIGKILL) after")
    assert outcome.errors[0].what in ("raised", "stopped")
    assert "of dies (`step()`)" in str(outcome.fault)


def test_a_notebooks_condition_on_tensors_is_understood(two):
    text = """
def program(rank):
    import tensorflow as tf

    @tf.function
    def limited(x):
        if x > 0:
            return x
        else:
            return -x

    return float(limited(tf.constant(rank - 1.0)))
"""
    # AutoGraph reads the source of the cell, which no file holds.
    linecache.cache["cell_7.py"] = (len(text), None, text.splitlines(keepends=True), "cell_7.py")
    cell = types.ModuleType("__main__")
    exec(compile(text, "cell_7.py", "exec"), cell.__dict__)
    assert two.run(cell.program, timeout=120) == [1.0, 0.0]
