"""The topology of this machine, from a /sys made for the test and a stand-in for the driver."""

import pytest

from labkit.hardware import topology
from labkit.hardware.machine_topology import read_topology
from labkit.known_hardware import MACHINES, Edge
from labkit.views.machine_figure import machine_board


@pytest.fixture
def two_sockets(tmp_path):
    """Two sockets of two cores with two threads each; GPUs 0 to 3 are near the second one."""
    for core in range(8):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{core // 2 % 2}\n")
    for node, cores in enumerate(("0-1,4-5", "2-3,6-7", "")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cores}\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:       1000000 kB\n")
    for gpu in range(8):
        folder = tmp_path / f"sys/bus/pci/devices/0000:{0x80 - gpu:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "local_cpulist").write_text("2-3,6-7" if gpu < 4 else "0-1,4-5")
    return tmp_path


@pytest.fixture
def read(in_scene):
    """The topology in a fresh process in which the driver shows a scene."""
    program = "from labkit.hardware.machine_topology import Path, read_topology as read\n"
    return lambda scene, root: in_scene(f"{program}found = read(Path({str(root)!r}))", scene)


def test_sockets_have_their_cores_and_their_memory(two_sockets):
    found = read_topology(two_sockets)
    assert found.parts["CPU 0"] == "4 logical cores\n1.02 GB of memory"
    assert found.parts["CPU 1"] == "4 logical cores\n1.02 GB of memory"
    assert Edge("CPU 0", "CPU 1", "") in found.edges


def test_without_linux_it_says_what_it_cannot_see(tmp_path):
    found = read_topology(tmp_path)
    assert any("does not report" in note for note in found.notes)


def test_here_it_is_read_and_drawn():
    found = topology()
    assert found.kind.name == "measured"
    data, _ = found._repr_mimebundle_()
    assert "CPU 0" in data["text/plain"]


def test_gpus_on_a_switch_are_near_their_own_socket(read, two_sockets):
    found = read("eight", two_sockets)
    assert Edge("GPU 7", "NVSwitch", "NVLink", 18) in found.edges
    assert Edge("GPU 0", "CPU 1", "PCIe 5 x16") in found.edges
    assert Edge("GPU 7", "CPU 0", "PCIe 5 x16") in found.edges


def test_a_mesh_counts_each_link_once(read, two_sockets):
    found = read("mesh", two_sockets)
    links = {(one.a, one.b): one.count for one in found.edges if one.link == "NVLink"}
    pairs = {(f"GPU {r}", f"GPU {r ^ 1}"): 2 for r in range(0, 8, 2)}
    assert links == pairs | {(f"GPU {r}", f"GPU {r ^ 2}"): 1 for r in (0, 1, 4, 5)}


def test_a_lost_gpu_is_a_note_and_the_other_stays(read, two_sockets):
    found = read("lost", two_sockets)
    assert Edge("GPU 0", "CPU 1", "PCIe 5 x16") in found.edges
    assert any("GPU 1" in note for note in found.notes)


@pytest.mark.parametrize("name", MACHINES)
def test_a_known_machine_is_drawn_and_says_where_it_was_recorded(name):
    found = topology(name)
    assert found.kind.name == "recorded"
    assert found.parts.keys() == set(MACHINES[name].nodes)
    board = machine_board(found)
    for word in board.words:
        if word.inside:
            x, y, wide, high = (getattr(word.area, a) for a in ("x", "y", "width", "height"))
            assert word.inside.x <= x
            assert x + wide <= word.inside.x + word.inside.width
            assert word.inside.y <= y
            assert y + high <= word.inside.y + word.inside.height


def test_the_bandwidth_of_a_known_link_is_that_of_all_its_lanes():
    assert "18 × NVLink 4, 450 GB/s: GPU 0–NVSwitch" in repr(topology("DGX H100"))
