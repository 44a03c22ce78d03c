"""What is loaded before ranks are forked: what the program's code names, and what earlier ranks
had to load.
"""

import os

import pytest

import labkit
from labkit.cluster import preloading
from labkit.cluster.preloading import needed_by
from tests.cluster.leftovers import gone, new_mark


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch):
    monkeypatch.setattr(preloading, "_learned", {})


def of_numpy(rank):
    import numpy as np

    return np.zeros(rank)


def by_another(rank):
    return of_numpy(rank)


def with_keras(rank):
    import tensorflow as tf

    return tf.keras.Model()


def with_a_room(rank):
    from labkit.training import Job

    return Job


def test_modules_are_found_in_the_code_of_a_program_and_of_what_it_calls():
    assert needed_by(of_numpy) == needed_by(by_another) == ("numpy",)
    assert needed_by(with_keras) == ("tensorflow", "keras")
    assert needed_by(lambda rank: rank) == ()


def test_rooms_that_load_tensorflow_when_used_are_known():
    assert needed_by(with_a_room) == ("numpy", "tensorflow", "keras", "labkit.training")


def test_what_you_name_comes_first():
    assert needed_by(of_numpy, ("json",)) == ("json", "numpy")


def test_what_a_rank_had_to_load_is_there_for_the_next_if_it_is_of_the_same_library():
    preloading.learn(("numpy.fft", "keras.layers"))
    assert needed_by(of_numpy) == ("numpy", "numpy.fft")


def test_a_module_that_cannot_be_loaded_is_the_programs_fault_and_not_the_launchers():
    with labkit.cluster(ranks=1, preload=("there_is_no_such_module",)) as c:
        assert c.run(abs) == [0]


def test_an_interrupt_while_modules_are_loaded_is_heeded_at_once(tmp_path, monkeypatch):
    interrupts_us = f"import os, time; os.kill({os.getpid()}, 2); time.sleep(60)"
    (tmp_path / "slow_to_load.py").write_text(interrupts_us)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    mark = new_mark()
    environment = {"LABKIT_TEST_MARK": mark}
    ranks = labkit.cluster(ranks=2, preload=("slow_to_load",), environment=environment)
    with pytest.raises(KeyboardInterrupt), ranks as c:
        c.run(abs)
    assert gone(mark) == {}
