"""TF_CONFIG: built from hosts and from Slurm, and each mistake in it explained."""

from __future__ import annotations

import json

import pytest

from labkit.cluster import tf_config
from labkit.cluster.slurm.srun_task import environment_of_batch_rank
from labkit.kinds import LabError

TWO = {
    "cluster": {"worker": ["10.0.0.1:23450", "10.0.0.2:23450"]},
    "task": {"type": "worker", "index": 1},
}
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "node[1-9]", "SLURM_TASKS_PER_NODE": "1(x9)",
    "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip


def changed(**entries):
    return {**TWO, **entries}


def workers(*addresses):
    return changed(cluster={"worker": list(addresses)}, task={"type": "worker", "index": 0})


def test_it_is_read_from_a_dictionary_from_text_and_from_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(TWO))
    read = tf_config.check(TWO)
    assert tf_config.check(json.dumps(TWO)) == tf_config.check() == tf_config.check(read) == read
    assert (read.task, read.rank, read.ranks) == ("worker 1", 1, 2)
    assert json.loads(read.text()) == TWO
    monkeypatch.delenv("TF_CONFIG")
    with pytest.raises(LabError, match="not set"):
        tf_config.check()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "not JSON"),
        ("{'cluster': {}}", "single quote"),
        ({"task": TWO["task"]}, "needs a cluster"),
        (changed(task={"type": "worker", "index": 2}), "worker 0 to worker 1"),
        (changed(task={"type": "chief", "index": 0}), "has 0 chief"),
        ({"cluster": {"evaluator": []}, "task": {"type": "evaluator", "index": 0}}, "0 evaluator"),
        (changed(task={"type": "Worker", "index": 0}), "'Worker'"),
        (changed(cluster={"worker": ["a:1"], "ps": ["b:1"]}), "need a chief"),
        (workers("a:1", "a:1"), "twice"),
        (workers("node1"), "'node1', must be a host and a port"),
    ],
)
def test_each_mistake_is_explained_in_a_few_words(config, message):
    with pytest.raises(LabError, match=message):
        tf_config.check(config)


def test_an_evaluator_needs_no_address():
    assert tf_config.check(changed(task={"type": "evaluator", "index": 0})).rank == 2


def test_node_lists_are_expanded_as_slurm_means_them():
    hosts = ("r1n3.lan", "r1n4.lan", "r2n3.lan", "r2n4.lan")
    assert tf_config.hosts_of("r[1-2]n[3-4].lan") == hosts


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]"])
def test_a_broken_node_list_is_named(text):
    with pytest.raises(LabError, match="node list"):
        tf_config.hosts_of(text)


def test_the_step_says_which_tasks_take_part():
    config = tf_config.from_slurm(SLURM)
    hosts = [address.partition(":")[0] for address in config.addresses]
    assert hosts == ["node1", "node1", "node2", "node2"]
    assert config.task == "worker 2"
    uneven = tf_config.from_slurm({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2,1"})
    assert [address.partition(":")[0] for address in uneven.addresses] == hosts[:3]


def test_steps_of_a_job_share_no_port_also_not_that_of_the_master():
    """16 tasks a node once had the MASTER_PORT of one step among the ports of the next."""
    for job in (1, 77, 4_294_901_760):
        steps = [set(tf_config.step_ports(job, step)) for step in range(50)]
        assert len(set.union(*steps)) == sum(map(len, steps))
        assert all(1024 < port < 32768 for ports in steps for port in ports)
    for rank in (0, 63, 64, 127):
        node, local = divmod(rank, 64)
        here = {"SLURM_PROCID": rank, "SLURM_NODEID": node, "SLURM_LOCALID": local}
        found = environment_of_batch_rank(
            {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "64(x2)", **{k: str(v) for k, v in here.items()}}
        )
        assert found["LOCAL_WORLD_SIZE"] == "64"
        addresses = tf_config.check(found["TF_CONFIG"]).addresses
        every = {*addresses, f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}"}
        assert len(every) == 129
        assert {int(one.rpartition(":")[2]) for one in every} <= {*tf_config.step_ports(77, 0)}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "SLURM_PROCID"),
        ({**SLURM, "SLURM_NODEID": "0"}, "--distribution=block"),
    ],
)
def test_what_slurm_has_not_set_is_named(environment, message):
    with pytest.raises(LabError, match=message):
        tf_config.from_slurm(environment)
