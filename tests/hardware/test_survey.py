"""What labkit.hardware() shows."""

import labkit
from labkit.hardware import Hardware, machine_text
from labkit.hardware.gpus import Driver, Gpu
from labkit.hardware.machine import Cores, Memory

MACHINE = Hardware(
    system="Linux x86_64",
    cores=Cores("A <fast> processor", 8, 8, 2.5),
    memory=Memory(64 * 10**9, 10 * 10**9, 16 * 10**9),
    driver=Driver(
        "580.65.06",
        "working",
        (Gpu(0, "T4", "GPU-1", 16 * 10**9, None), Gpu(1)),
        ("A note with <angles>.",),
    ),
)


def test_the_table_shows_what_is_unknown_and_escapes_names():
    text, page = str(MACHINE), MACHINE._repr_mimebundle_()["text/html"]
    assert "may use 2 (" in text
    assert "memory unknown" in text
    assert "A &lt;fast&gt; processor" in page
    assert "<angles>" not in page


def test_the_room_is_a_call_and_a_package():
    here = labkit.hardware()
    assert isinstance(here, labkit.hardware.Hardware)
    assert 1 <= here.cores.usable <= here.cores.logical
    assert 0 < here.memory.available <= here.memory.total
    assert f"{here.cores.usable} core" in machine_text()
