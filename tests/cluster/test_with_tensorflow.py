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


def test_workers_meet_and_find_tensorflow_loaded(two):
    def sums(rank):
        loaded = "tensorflow" in sys.modules and "keras" in sys.modules
        import tensorflow as tf

        return loaded, float(all_reduced(tf)())

    before = "tensorflow" in sys.modules
    for _ in range(2):
        assert two.run(sums, deadline=120) == [(True, 2.0), (True, 2.0)]
    assert ("tensorflow" in sys.modules) == before


def test_a_room_of_labkit_names_what_its_programs_need(two):
    def loaded(rank):
        from labkit import strategies  # noqa: F401

        return "tensorflow" in sys.modules

    assert two.run(loaded, deadline=120) == [True, True]


def test_every_run_has_new_processes_also_where_they_were_forked_in_advance(two):
    def whoami(rank):
        import tensorflow as tf  # noqa: F401

        return os.getpid(), os.getsid(0), os.environ["RANK"]

    seen = [two.run(whoami) for _ in range(3)]
    assert len({pid for run in seen for pid, *_ in run}) == 6
    for run in seen:
        assert [rank for *_, rank in run] == ["0", "1"]
        assert all(pid == session for pid, session, _ in run)


def test_a_worker_that_is_killed_is_the_cause_and_not_the_one_that_notices(two):
    def dies(rank):
        import tensorflow as tf

        step = all_reduced(tf)
        for number in range(10_000):
            step()
            if rank == 1 and number == 20:
                os.kill(os.getpid(), 9)

    outcome = two.start(dies, show=False).finish(deadline=120)
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
    assert two.run(cell.program, deadline=120) == [1.0, 0.0]
