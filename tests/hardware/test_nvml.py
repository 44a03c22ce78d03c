"""The driver is asked through the real nvidia-ml-py; behind it stands a library built from C."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import plain
from labkit.hardware import Hardware
from tests.nvml_library import built

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def look(library):
    """labkit.hardware() in a fresh process in which the driver shows a scene."""

    def look(scene: str, **environment: str) -> Hardware:
        program = (
            "import sys, labkit; from labkit import plain; sys.stdout.write("
            "plain.dump(labkit.hardware())); assert 'tensorflow' not in sys.modules"
        )
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        seen = {"LD_LIBRARY_PATH": str(library), "NVML_SCENE": scene, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**kept, **seen, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        hardware = plain.load(done.stdout)
        assert isinstance(hardware, Hardware)
        return hardware

    return look


def test_eight_gpus_are_joined_by_a_switch(look):
    here = look("eight", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert here.driver == "580.65.06"
    assert here.driver_state == "working"
    assert [gpu.name for gpu in here.gpus] == ["NVIDIA H100"] * 8
    assert {gpu.memory_total for gpu in here.gpus} == {80 * 10**9}
    assert all(gpu.memory_used and 3e10 < gpu.memory_used < 6e10 for gpu in here.gpus)
    assert [gpu.index for gpu in here.gpus] == list(range(8))
    # The stand-in's slots run against NVML's order.
    assert [gpu.cuda_index for gpu in here.gpus] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert len(here.links) == 28
    assert {link.path for link in here.links} == {"18 NVLinks through NVSwitch"}
    assert {(link.nvlinks, link.direct) for link in here.links} == {(18, True)}
    assert here.notes == ()
    assert "every pair: 18 NVLinks through NVSwitch; direct copies" in str(here)


def test_direct_nvlinks_are_told_from_pcie(look):
    here = look("mesh")
    assert {(gpu.memory_total, gpu.memory_used) for gpu in here.gpus} == {(80 * 10**9, 10**9)}
    links = {(link.first, link.second): link for link in here.links}
    assert links[0, 1].path == "2 NVLinks"
    assert links[0, 1].nvlinks == 2
    assert links[0, 2].path == "1 NVLink"
    assert links[0, 2].direct is True
    assert links[0, 3].path == "PCIe, one switch"
    assert links[0, 3].nvlinks == 0
    assert links[0, 4].path == "between CPUs"
    assert links[0, 4].direct is False


def test_the_cuda_order_is_unknown_unless_it_is_set(look):
    here = look("two kinds")
    assert [(gpu.cuda, gpu.cuda_index) for gpu in here.gpus] == [("unknown", None)] * 2
    assert any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in here.notes)
    assert {gpu.mig for gpu in here.gpus} == {"not supported"}
    assert "CUDA index unknown" in str(here)


def test_mig_instances_are_listed_and_the_chosen_one_has_an_index(look):
    here = look("mig", CUDA_VISIBLE_DEVICES="MIG-aaaa0-1")
    (gpu,) = here.gpus
    assert gpu.mig == "on"
    assert gpu.cuda == "hidden"
    assert [i.name for i in gpu.instances] == ["NVIDIA H100 MIG 3g.40gb"] * 2
    assert [i.memory_total for i in gpu.instances] == [40 * 10**9] * 2
    assert [(i.cuda, i.cuda_index) for i in gpu.instances] == [("hidden", None), ("visible", 0)]


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("not loaded", "its driver is not running"),
        ("mismatch", "different versions"),
        ("permission", "no permission"),
        ("odd", "an odd fault"),
    ],
)
def test_a_broken_driver_is_one_sentence(look, scene, words):
    here = look(scene)
    assert (here.gpus, here.links, here.driver_state) == ((), (), "broken")
    (note,) = here.notes
    assert words in note.replace("Unknown Error", "an odd fault")
    assert note in str(here)
    assert note in here._repr_mimebundle_()["text/html"].replace("&#x27;", "'")


def test_a_missing_metric_leaves_the_others(look):
    here = look("no memory")
    assert [gpu.memory_total for gpu in here.gpus] == [None, None]
    assert [gpu.name for gpu in here.gpus] == ["NVIDIA H100"] * 2
    assert "GPUs 0 and 1 do not report memory: not supported here." in here.notes
    refused = look("memory refused")
    assert [gpu.memory_used for gpu in refused.gpus] == [None, 10**9]
    assert "GPU 0 does not report memory: no permission." in refused.notes
    odd = look("odd mig")
    assert {gpu.mig for gpu in odd.gpus} == {"unknown"}


@pytest.mark.parametrize("scene", ["lost", "lost handle"])
def test_a_lost_gpu_is_named_and_the_other_stays(look, scene):
    here = look(scene, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert here.gpus[0].name == "NVIDIA H100"
    assert here.gpus[0].memory_used == 10**9
    assert here.gpus[1].name is None
    assert here.gpus[1].mig == "unknown"
    assert sum("GPU 1 is lost" in note for note in here.notes) == 1
    # Nobody can say whether CUDA still counts it.
    assert {gpu.cuda for gpu in here.gpus} == {"unknown"}


def test_a_machine_without_a_driver_is_no_fault(look, tmp_path):
    here = look("", LD_LIBRARY_PATH=str(tmp_path))
    if here.driver_state != "none":
        pytest.skip("this machine has an NVIDIA driver of its own")
    (note,) = here.notes
    assert "No NVIDIA driver" in note
    assert "CPUs" in note
