"""The environment of a rank: yours, then what a rank needs, then what you asked for."""

from types import SimpleNamespace

import pytest

from labkit.cluster.engine import Places
from labkit.cluster.roles import indices, tf_config
from labkit.cluster.surroundings import deal_gpus, environments

PLACES = Places(("127.0.0.1:5", "127.0.0.1:6"), "127.0.0.1:7")


def gpus(*names, visible=True):
    """What NVML says of such GPUs."""
    found = [SimpleNamespace(uuid=name, visible=visible) for name in names]
    return SimpleNamespace(gpus=tuple(found))


@pytest.mark.parametrize(
    ("names", "ranks", "dealt"),
    [
        ((), 2, ()),
        (("A", "B"), 2, ("A", "B")),
        (("A", "B", "C", "D"), 2, ("A,C", "B,D")),
        (("A", "B"), 3, ("A", "B", "A")),
        (("A", None), 2, ()),
    ],
)
def test_gpus_are_dealt_out_in_turn(monkeypatch, names, ranks, dealt):
    monkeypatch.setattr("labkit.hardware.gpus.read_gpus", lambda: gpus(*names))
    assert deal_gpus(ranks) == dealt


def test_gpus_that_cuda_may_hide_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr("labkit.hardware.gpus.read_gpus", lambda: gpus("A", "B", visible=None))
    assert deal_gpus(2) == ()


def test_ranks_that_share_a_gpu_do_not_take_it_whole():
    first, second = environments(("worker",) * 2, PLACES, "local", {}, ("A", "A"), cores=1)
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "A"
    assert first["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_threads_are_those_that_you_have_set(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    (found,) = environments(("worker",), Places(("h:1",), "h:2"), "local", {}, cores=3)
    assert (found["OMP_NUM_THREADS"], found["TF_NUM_INTRAOP_THREADS"]) == ("5", "3")


def test_on_other_machines_cores_and_interfaces_are_not_ours(monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "GLOO_SOCKET_IFNAME", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    first, _ = environments(("worker",) * 2, PLACES, "slurm", {})
    assert not {"TF_NUM_INTRAOP_THREADS", "GLOO_SOCKET_IFNAME", "LOCAL_RANK"} & set(first)
    assert (first["RANK"], first["MASTER_ADDR"], first["MASTER_PORT"]) == ("0", "127.0.0.1", "7")


def test_an_evaluator_is_no_part_of_the_cluster():
    roles = ("chief", "worker", "evaluator")
    found = tf_config(roles, ("a:1", "b:2", "c:3"), 2)
    assert found == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2"]},
        "task": {"type": "evaluator", "index": 0},
    }
    assert indices(("worker", "ps", "worker")) == (0, 0, 1)
