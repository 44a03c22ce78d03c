"""labkit.replicas, on GPUs and CPUs that a fake plays, because this machine may have no GPUs. It
keeps the rules of tf.config: nothing changes once initialised, growth excludes a split."""

import os
from types import SimpleNamespace

import pytest

import labkit
from labkit import LabError
from labkit.hardware import devices, replicas


class Config:
    """The part of tf.config that replicas are made with."""

    LogicalDeviceConfiguration = SimpleNamespace

    def __init__(self, gpus):
        self.gpus = [SimpleNamespace(name=f"GPU:{n}") for n in range(gpus)]
        self.pieces, self.growth, self.initialised = {}, {}, False
        self.experimental = self.threading = self
        self.threads = {"intra": 0, "inter": 0}

    def get_visible_devices(self, kind):
        return self.gpus if kind == "GPU" else [SimpleNamespace(name="CPU:0")]

    def get_device_details(self, device):
        return {"device_name": "NVIDIA H100"}

    def get_logical_device_configuration(self, device):
        return self.pieces.get(device.name)

    def set_logical_device_configuration(self, device, pieces):
        if self.initialised:
            raise RuntimeError("Virtual devices cannot be modified after being initialized")
        assert not self.growth.get(device.name), "growth and a memory limit exclude each other"
        self.pieces[device.name] = pieces

    def set_memory_growth(self, device, enable):
        if device.name in self.pieces:
            raise ValueError("Cannot set memory growth on device when virtual devices configured")
        if self.growth.get(device.name, False) != enable and self.initialised:
            raise RuntimeError("Physical devices cannot be modified after being initialized")
        self.growth[device.name] = enable

    def get_intra_op_parallelism_threads(self):
        return self.threads["intra"]

    def get_inter_op_parallelism_threads(self):
        return self.threads["inter"]

    def set_intra_op_parallelism_threads(self, count):
        self.set_threads("intra", count)

    def set_inter_op_parallelism_threads(self, count):
        self.set_threads("inter", count)

    def set_threads(self, what, count):
        if self.initialised:
            raise RuntimeError("Threads cannot be modified after initialization")
        self.threads[what] = count


@pytest.fixture
def machine(monkeypatch):
    def machine(count, cores=2):
        config = Config(count)
        monkeypatch.setattr(devices, "import_tensorflow", lambda: SimpleNamespace(config=config))
        room = labkit.hardware.replicas.__globals__
        monkeypatch.setitem(room, "read_cores", lambda: SimpleNamespace(usable=cores))
        return config

    return machine


def test_real_gpus_come_first_and_grow_and_may_use_nccl(machine):
    machine(4)
    two = labkit.replicas()
    assert two.placement == "gpus"
    assert two.devices == ("/gpu:0", "/gpu:1")
    assert two.describe() == "2 GPUs (NVIDIA H100)"
    assert "At most 2 times" in two.expectation
    assert "NVIDIA H100 (GPU 1)" in two._repr_mimebundle_()["text/html"]
    assert two.reductions() == ("nccl", "hierarchical copy", "reduction to one device")
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"  # a kernel leaves memory to ranks
    assert labkit.replicas(devices=["gpu:3", "/gpu:1"]).devices == ("/gpu:3", "/gpu:1")
    assert labkit.replicas(1).describe() == "1 GPU (NVIDIA H100)"
    with pytest.raises(LabError, match="'hierarchical copy'"):
        two.strategy("ring")
    with pytest.raises(LabError, match=r"gpu:7.*gpu:0, gpu:1, gpu:2, gpu:3"):
        labkit.replicas(devices=["gpu:0", "gpu:7"])


def test_one_gpu_is_split_with_room_to_spare(machine):
    config = machine(1)
    assert labkit.replicas(1).devices == ("/gpu:0",)
    config.set_memory_growth(config.gpus[0], True)  # as many programs do; the split turns it off
    two = labkit.replicas(2)
    assert two.placement == "one gpu, split"
    assert two.devices == ("/gpu:0", "/gpu:1")
    assert two.reductions() == ("reduction to one device", "hierarchical copy")
    assert "no speed-up" in two.expectation
    limits = [piece.memory_limit for piece in config.pieces["GPU:0"]]
    assert limits[0] == limits[1] <= 4096  # megabytes: two fit on the GPU of a laptop
    assert "piece 2 of 2 of NVIDIA H100 (GPU 0)" in two.names
    # Asked again, for more, before TensorFlow starts.
    assert labkit.replicas(4).count == 4
    config.initialised = True
    assert labkit.replicas(3).names[0].startswith("piece 1 of 4")
    with pytest.raises(LabError, match=r"running with 4.*Restart.*labkit.replicas\(4\)"):
        labkit.replicas(5)


def test_more_replicas_than_gpus_share_the_first(machine):
    machine(2)
    three = labkit.replicas(3)
    assert three.placement == "one gpu, split"
    assert all("(GPU 0)" in name for name in three.names)
    # Two still find two chips, although the second is TensorFlow's GPU 3 by now.
    two = labkit.replicas(2)
    assert (two.placement, two.devices) == ("gpus", ("/gpu:0", "/gpu:3"))


def test_cpus_can_be_chosen_where_there_are_gpus(machine):
    config = machine(2)
    two = labkit.replicas(2, devices="cpu")
    assert two.devices == ("/cpu:0", "/cpu:1")
    assert len(config.pieces["CPU:0"]) == 2
    assert config.growth == {}


@pytest.mark.parametrize(
    ("cores", "summary", "expected"),
    [(2, "2 logical CPUs with one core each", "up to 2 times"),
     (1, "2 logical CPUs sharing 1 core", "correctness, not speed")],
)  # fmt: skip
def test_logical_cpus_promise_what_the_cores_allow(machine, cores, summary, expected):
    config = machine(0, cores=cores)
    two = labkit.replicas(2)
    assert (two.placement, two.devices) == ("cpus", ("/cpu:0", "/cpu:1"))
    assert two.describe() == summary
    assert expected in str(two)
    assert config.threads["intra"] == 1
    assert two.reductions()[0] == "reduction to one device"
    chosen = labkit.replicas(devices=["/cpu:3", "CPU:1"])
    assert chosen.devices == ("/cpu:3", "/cpu:1")
    assert len(config.pieces["CPU:0"]) == 4
    one = labkit.replicas(devices=[two.devices[0]])
    assert (one.describe(), one.reductions()) == ("1 logical CPU with one core", ("none",))


def test_a_running_tensorflow_keeps_its_devices_and_threads(machine):
    config = machine(0)
    config.pieces["CPU:0"] = [None] * 3
    config.initialised = True
    two = labkit.replicas(2)
    assert two.devices == ("/cpu:0", "/cpu:1")
    assert "sharing" in two.describe()
    with pytest.raises(LabError, match=r"already running with 3.*labkit.replicas\(3\)"):
        labkit.replicas(4)


@pytest.mark.parametrize(
    ("n", "names", "words"),
    [
        (0, None, "n must be a whole number .* got 0"),
        (None, ["gpu:0"], "no GPU here"),
        (None, ["cpu:0", "gpu:0"], "different devices"),
        (4, ["cpu:0", "cpu:1"], "4 replicas on 2 devices"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_users_value(machine, n, names, words):
    machine(0)
    with pytest.raises(LabError, match=words):
        replicas(n, names)
