"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER decide which number a GPU has."""

import pytest

from labkit.hardware import Gpu, MigInstance
from labkit.hardware.visible import with_cuda_indices

SLOT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gpu(index, mig="off", instances=(), uuid="", pci=""):
    uuid = uuid or f"GPU-{index}abc-{index}"
    return Gpu(index, "H100", uuid, pci or f"{index:08x}", 1, 1, mig, instances, "unknown", None)


def seen(gpus, environment):
    filled, _ = with_cuda_indices(gpus, environment)
    return [g.cuda_index if g.cuda == "visible" else g.cuda for g in filled]


THREE = [gpu(0), gpu(1), gpu(2)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("0,1,2", [0, 1, 2]),
        ("2,0", [1, "hidden", 0]),
        (" 2 , 0 ", [1, "hidden", 0]),
        ("", ["hidden"] * 3),
        ("-1", ["hidden"] * 3),
        ("NoDevFiles", ["hidden"] * 3),
        ("0,2,-1,1", [0, "hidden", 1]),
        ("1,7,0", ["hidden", 0, "hidden"]),
        ("1,1", ["hidden"] * 3),
        ("1,banana", ["unknown"] * 3),
        ("GPU-2abc-2,GPU-0abc-0", [1, "hidden", 0]),
        ("GPU-2", ["hidden", "hidden", 0]),
        ("gpu-2", ["unknown"] * 3),
        ("GPU-", ["hidden"] * 3),
        ("GPU-2abc,1", ["unknown"] * 3),
        ("GPU-9", ["hidden"] * 3),
        ("MIG-nowhere", ["hidden"] * 3),
    ],
)
def test_the_list_of_visible_devices(value, expected):
    environment = SLOT if value is None else {**SLOT, "CUDA_VISIBLE_DEVICES": value}
    assert seen(THREE, environment) == expected


@pytest.mark.parametrize("environment", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}])
def test_cudas_own_order_is_not_guessed(environment):
    assert seen(THREE, environment) == ["unknown"] * 3
    assert seen(THREE, {**environment, "CUDA_VISIBLE_DEVICES": "0"}) == ["unknown"] * 3
    # What does not depend on the order is known all the same.
    assert seen(THREE, {**environment, "CUDA_VISIBLE_DEVICES": "GPU-1"}) == ["hidden", 0, "hidden"]
    assert seen(THREE, {**environment, "CUDA_VISIBLE_DEVICES": "-1"}) == ["hidden"] * 3
    assert seen([gpu(0)], environment) == [0]


def test_slots_and_not_nvmls_order_count():
    assert seen([gpu(0, pci="b"), gpu(1, pci="a")], SLOT) == [1, 0]


def test_a_gpu_cut_by_mig_has_no_number_of_its_own():
    parts = (
        MigInstance("1g", "MIG-one", 1, "unknown", None),
        MigInstance("1g", "MIG-two", 1, "unknown", None),
    )
    machine = [gpu(0, mig="on", instances=parts)]
    for environment in (SLOT, {**SLOT, "CUDA_VISIBLE_DEVICES": "0"}):
        filled, notes = with_cuda_indices(machine, environment)
        assert [i.cuda for i in filled[0].instances] == ["unknown", "unknown"]
        assert any("UUID of one instance" in note for note in notes)
    filled, _ = with_cuda_indices(machine, {"CUDA_VISIBLE_DEVICES": "MIG-two,MIG-one"})
    assert [i.cuda_index for i in filled[0].instances] == [None, 0]
    filled, _ = with_cuda_indices(machine, {"CUDA_VISIBLE_DEVICES": "MIG-GPU-0abc-0/1/0"})
    assert [i.cuda for i in filled[0].instances] == ["unknown", "unknown"]


def test_a_machine_without_gpus_has_nothing_to_say():
    assert with_cuda_indices([], {"CUDA_VISIBLE_DEVICES": "0,0"}) == ((), ())
