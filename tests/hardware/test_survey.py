"""What labkit.hardware() shows, and what it costs to ask."""

import os
import subprocess
import sys

import labkit
from labkit import plain
from labkit.hardware import Cores, Gpu, Hardware, Link, Memory, machine_text, survey
from labkit.kinds import measured


def machine(**changed):
    cores = Cores("A <fast> processor", 4, 8, 8, 2.5)
    parts = {
        "system": "Linux x86_64",
        "cores": cores,
        "memory": Memory(64 * 10**9, 10 * 10**9, 16 * 10**9),
        "driver": "580.65.06",
        "driver_state": "working",
        "gpus": (
            Gpu(0, "T4", "GPU-1", "0", 16 * 10**9, None, "not supported", (), "visible", 1),
            Gpu(1, None, None, None, None, None, "unknown", (), "unknown", None),
        ),
        "links": (Link(0, 1, "2 NVLinks", 2, None),),
        "notes": ("A note with <angles>.",),
        "kind": measured("this machine"),
    }
    return Hardware(**{**parts, **changed})


def test_the_room_is_a_call_and_a_package():
    here = labkit.hardware()
    assert isinstance(here, labkit.hardware.Hardware)
    assert here.cores.usable <= here.cores.logical
    assert 0 < here.memory.available <= here.memory.total
    assert here.kind.name == "measured"
    assert callable(labkit.replicas)


def test_hardware_survives_json():
    for here in (machine(), survey()):
        assert plain.load(plain.dump(here)) == here
        assert repr(here) == repr(plain.load(plain.dump(here)))


def test_the_table_says_what_is_unknown_and_where_numbers_come_from():
    text, page = str(machine()), machine()._repr_mimebundle_()["text/html"]
    assert "this process may use 2 (time for 2.5)" in text
    assert "10.0 GB available, limited to 16.0 GB" in text
    assert "CUDA index 1" in text
    assert "name unknown, memory unknown, CUDA index unknown" in text
    assert "every pair: 2 NVLinks; direct copies unknown" in text
    assert "measured on this machine" in text
    assert "measured on this machine" in page
    assert ">GPU</th>" in page
    assert "A &lt;fast&gt; processor" in page
    assert "<angles>" not in page


def test_the_machine_in_one_line():
    line = machine_text()
    assert "\n" not in line
    assert line is machine_text()
    assert f"{survey().cores.usable} core" in line


def test_asking_does_not_load_tensorflow():
    program = (
        "import sys, labkit; labkit.hardware();"
        "sys.exit(any(m in sys.modules for m in ('tensorflow', 'matplotlib', 'keras')))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False)
    assert done.returncode == 0
