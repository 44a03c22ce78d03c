"""Checkpoints: whole or not at all, and only for the training that wrote them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.strategies import checkpoints

VALUES = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(7)]


def test_what_was_written_is_read(tmp_path):
    checkpoints.write(tmp_path / "new", 40, VALUES, "this one")
    step, values = checkpoints.read(tmp_path / "new", "this one")
    assert step == 40
    for value, expected in zip(values, VALUES, strict=True):
        np.testing.assert_array_equal(value, expected, strict=True)


def test_an_empty_folder_means_from_the_beginning(tmp_path):
    assert checkpoints.read(tmp_path / "nothing", "this one") == (0, [])


def test_a_checkpoint_of_another_training_is_not_taken(tmp_path):
    checkpoints.write(tmp_path, 40, VALUES, "batches of 64")
    with pytest.raises(
        LabError, match=r"of another training: batches of 64; this one is batches of 32"
    ):
        checkpoints.read(tmp_path, "batches of 32")


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = checkpoints.write(tmp_path, 40, VALUES, "this one")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(LabError, match="no checkpoint that can be read"):
        checkpoints.read(tmp_path, "this one")


def test_a_disk_that_fills_up_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    checkpoints.write(tmp_path, 40, VALUES, "this one")

    def full(file, **_):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(LabError, match=r"after step 50 could not be written.*No space left"):
            checkpoints.write(tmp_path, 50, VALUES, "this one")
    assert checkpoints.read(tmp_path, "this one")[0] == 40
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.npz"]


def test_nothing_but_numbers_is_read(tmp_path):
    # A pickle in a checkpoint could run anything.
    np.savez(tmp_path / "checkpoint.npz", step=np.array([{}], dtype=object), identity="this one")
    with pytest.raises(LabError, match="no checkpoint that can be read"):
        checkpoints.read(tmp_path, "this one")


def test_a_streamed_data_set_cannot_be_continued(tmp_path):
    job = SimpleNamespace(inputs=SimpleNamespace(resumable=False))
    with pytest.raises(LabError, match="streamed=True"):
        checkpoints.train(job, tmp_path, steps=60)
