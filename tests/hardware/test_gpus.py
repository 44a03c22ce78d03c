"""The driver is read through the real nvidia-ml-py; behind it is a library built from C."""

import pytest

from labkit.hardware import gpus


@pytest.fixture
def read(in_scene):
    """labkit.hardware() in a fresh process in which the driver shows a scene."""
    program = "import labkit; assert 'tensorflow' not in sys.modules; found = labkit.hardware()"
    return lambda scene, **environment: in_scene(program, scene, **environment)


def test_eight_gpus(read):
    here = read("eight", CUDA_VISIBLE_DEVICES="2,GPU-5555")
    driver = here.driver
    assert (driver.version, driver.state, driver.notes) == ("580.65.06", "working", ())
    assert [gpu.name for gpu in driver.gpus] == ["NVIDIA H100"] * 8
    assert {gpu.memory_total for gpu in driver.gpus} == {80 * 10**9}
    assert all(3e10 < gpu.memory_used < 6e10 for gpu in driver.gpus)
    assert [gpu.index for gpu in driver.gpus if gpu.visible] == [2, 5]
    assert "hidden by CUDA_VISIBLE_DEVICES" in str(here)


@pytest.mark.parametrize(
    ("scene", "words"),
    [("not loaded", "not running"), ("odd", "nvidia-smi"), (None, "No NVIDIA driver")],
)  # fmt: skip
def test_a_broken_or_missing_driver_is_one_sentence(read, tmp_path, scene, words):
    here = read(scene) if scene else read("", LD_LIBRARY_PATH=str(tmp_path))
    if scene is None and here.driver.state == "working":
        pytest.skip("this machine has an NVIDIA driver of its own")
    assert (here.driver.gpus, here.driver.state) == ((), "broken" if scene else "none")
    (note,) = here.driver.notes
    assert words in note
    assert " ".join(note.split()) in " ".join(str(here).split())


def test_a_lost_gpu_is_named_and_the_other_stays(read):
    here = read("lost")
    assert [gpu.memory_used for gpu in here.driver.gpus] == [10**9, None]
    (note,) = here.driver.notes
    assert note.startswith("GPU 1")
    assert "is lost" in note  # labkit doctor looks for this


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        (None, [True, True]),
        ("-1", [False, False]),
        ("", [False, False]),
        (" 1 ", [False, True]),
        ("GPU-0", [True, False]),
    ],
)
def test_what_cuda_may_use(read, value, visible):
    variables = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = read("two", **variables).driver.gpus
    assert [gpu.visible for gpu in found] == visible
    assert gpus.names_text(found) == "2 × NVIDIA H100"
