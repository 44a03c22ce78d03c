"""AMD's GPUs, with a /sys as the driver's documentation describes it."""

from __future__ import annotations

import json

from labkit.telemetry.amd import AmdGpus
from labkit.telemetry.nvidia import NvidiaGpus

CARD = {
    "mem_info_vram_total": "206141652992",
    "mem_info_vram_used": "1048576",
    "gpu_busy_percent": "37",
    "mem_busy_percent": "12",
    "hwmon/hwmon4/power1_average": "250000000",
    "hwmon/hwmon4/power1_cap": "750000000",
    "hwmon/hwmon4/temp1_input": "45000",
    "hwmon/hwmon4/freq1_input": "2100000000",
    "product_name": "AMD Instinct MI300X",
}


class NoGpus(NvidiaGpus):
    def open(self):
        return (), ()


def card(root, number, **changed):
    for name, text in {**CARD, **changed}.items():
        file = root / f"sys/class/drm/card{number}/device" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root / f"sys/class/drm/card{number}/device"


def test_each_card_gives_its_numbers_in_our_units(tmp_path):
    for number in (2, 10):  # 10 after 2
        card(tmp_path, number, gpu_busy_percent=number)
    (tmp_path / "sys/class/drm/card1/device").mkdir(parents=True)  # another maker's
    gpus = AmdGpus(NoGpus(), tmp_path, clock=lambda: 7.0)
    devices, states = gpus.open()
    assert [(one.key, one.name, one.power_limit) for one in devices] == [
        ("gpu0", "AMD Instinct MI300X", 750.0),
        ("gpu1", "AMD Instinct MI300X", 750.0),
    ]
    assert {one.metric for one in states} == {"sm_activity", "energy"}
    gpus.sample()
    ((time, values),), _ = gpus.take()
    assert time == 7.0
    assert json.loads(f"[{values}]") == [
        [2, None, 12, 1048576, 250, 45, 2100, None],
        [10, None, 12, 1048576, 250, 45, 2100, None],
    ]
    assert gpus.take() == ([], ())


def test_a_newer_card_tells_its_power_in_another_file(tmp_path):
    folder = card(tmp_path, 0)
    (folder / "hwmon/hwmon4/power1_average").rename(folder / "hwmon/hwmon4/power1_input")
    gpus = AmdGpus(NoGpus(), tmp_path)
    _, states = gpus.open()
    assert "power" not in {one.metric for one in states}


def test_a_file_is_read_anew_and_may_have_no_number_for_a_while(tmp_path):
    folder = card(tmp_path, 0)
    gpus = AmdGpus(NoGpus(), tmp_path)
    gpus.open()
    for text in ("90\n", "busy\n"):
        (folder / "gpu_busy_percent").write_text(text)
        gpus.sample()
    rows, _ = gpus.take()
    assert [json.loads(f"[{values}]")[0][0] for _, values in rows] == [90, None]


def test_what_a_card_does_not_report_is_named(tmp_path):
    folder = card(tmp_path, 0)
    (folder / "mem_busy_percent").unlink()
    _, states = AmdGpus(NoGpus(), tmp_path).open()
    assert ("memory_activity", "not supported") in {(one.metric, one.why) for one in states}
