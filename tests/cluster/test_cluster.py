"""The cluster that users hold: programs, roles, the environment of ranks, what is refused."""

import functools
import sys
import threading
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

import labkit
from labkit.cluster import this_rank
from labkit.cluster.ranks import environment
from labkit.cluster.ranks.environment import local_variables
from labkit.kinds import LabError
from tests.cluster.programs import times_factor


def test_a_program_may_be_a_closure_a_lambda_a_partial_or_a_method(four):
    class Scaled:
        def __init__(self, by):
            self.by = by

        def program(self, rank):
            return rank * self.by

    by = 3
    assert four.run(lambda rank: rank * by) == [0, 3, 6, 9]
    assert four.run(Scaled(5).program) == [0, 5, 10, 15]
    assert four.run(functools.partial(times_factor, added=2)) == [2, 12, 22, 32]


def test_every_rank_has_its_own_random_numbers_and_no_input(four):
    def draws(rank):
        import random

        import numpy as np

        try:
            return input("your name? ")
        except EOFError:
            pass
        return random.random(), float(np.random.random())  # noqa: NPY002

    drawn = [*four.run(draws, show=False), *four.run(draws, show=False)]
    assert len({first for first, _ in drawn}) == len({second for _, second in drawn}) == 8
    assert four.run(lambda rank: sys.exit(0)) == [None] * 4


def test_threads_are_those_of_this_run_and_not_of_an_earlier_one(monkeypatch):
    """NumPy's own were made when the fork server imported it, perhaps for more ranks."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def threads(rank):
        import numpy as np

        square = np.ones((1000, 1000))
        square @ square
        return len([*Path("/proc/self/task").iterdir()])

    for wanted in (3, 1, 2):
        environment = {"OMP_NUM_THREADS": wanted, "OPENBLAS_NUM_THREADS": wanted}
        with labkit.cluster(ranks=1, keep_warm=True, variables=environment) as c:
            assert c.run(threads) == [wanted]
    labkit.cluster.shutdown()


def test_cores_and_gpus_are_shared_among_the_ranks(monkeypatch):
    monkeypatch.setattr(environment, "_usable_cores", lambda: 7)
    monkeypatch.setattr(environment, "gpus", lambda: ("A",))
    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # the user's own stays
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    first, second = (local_variables(2, rank) for rank in range(2))
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == ""
    assert (first.get("OMP_NUM_THREADS"), first["TF_NUM_INTRAOP_THREADS"]) == (None, "3")
    monkeypatch.setattr(environment, "gpus", lambda: ("A", "B", "C", "D"))
    assert local_variables(2, 1)["CUDA_VISIBLE_DEVICES"] == "B"
    assert "CUDA_VISIBLE_DEVICES" not in local_variables(1, 0)
    for system, loopback in (("linux", "lo"), ("darwin", "lo0")):
        monkeypatch.setattr(sys, "platform", system)
        assert local_variables(2, 1)["GLOO_SOCKET_IFNAME"] == loopback


def test_two_clusters_at_once_do_not_disturb_each_other(four):
    with labkit.cluster(ranks=2) as other:
        run = four.start(times_factor)
        assert other.run(times_factor) == [0, 10]
        assert run.finish().results == {0: 0, 1: 10, 2: 20, 3: 30}


def test_of_two_threads_one_has_its_run_and_the_other_is_refused(four, monkeypatch):
    both = threading.Barrier(2)  # in the middle of start
    monkeypatch.setattr("labkit.cluster.cluster.modules_of", lambda _: (both.wait(300), ())[1])

    def started(_):
        try:
            return four.start(times_factor)
        except LabError as fault:
            return str(fault)

    with ThreadPool(2) as threads:
        run, refused = sorted(threads.map(started, range(2)), key=str)
    assert "Another run has not ended" in refused
    assert run.finish().results == {0: 0, 1: 10, 2: 20, 3: 30}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"roles": {"boss": 1}}, "role must be one of .* got 'boss'"),
        ({"engine": "moon"}, "engine must be one of 'local', 'slurm', got 'moon'"),
        ({"partition": "alpha", "nodes": 2}, 'nodes is for engine="slurm", got engine="local"'),
        ({"engine": "slurm", "keep_warm": False}, 'keep_warm is for engine="local", got'),
    ],
)
def test_wrong_keywords_are_refused_before_anything_starts(keywords, message):
    with pytest.raises(LabError, match=message):
        labkit.cluster(**keywords)


@pytest.mark.parametrize(
    ("program", "keywords", "message"),
    [
        (3, {}, r"function of \(rank\), got 3"),
        (times_factor, {"until": {7}}, "rank in until must be one of 0, 1, 2, 3, got 7"),
    ],
)
def test_wrong_calls_are_refused_before_anything_starts(four, program, keywords, message):
    with pytest.raises(LabError, match=message):
        four.run(program, **keywords)


def test_outside_its_block_a_cluster_has_no_ranks(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    c = labkit.cluster(ranks=1)
    with c:
        assert "1 rank on" in repr(c)
    with pytest.raises(LabError, match="only in a block"):
        c.run(times_factor)
    assert "its block has ended" in repr(c)
    with pytest.raises(LabError, match="TF_CONFIG is not set"):
        this_rank()
