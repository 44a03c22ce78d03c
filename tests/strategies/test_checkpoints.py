"""Checkpoints: whole or not at all, and only for the training that wrote them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.strategies import checkpoints


class Variable:
    def __init__(self, value):
        self.value = value

    def numpy(self):
        return self.value

    def assign(self, value):
        self.value = value


def job(weight=0.0, batch=32, **more):
    """What of a job a checkpoint needs."""
    weights = [Variable(np.full((2, 3), weight, np.float32))]
    return SimpleNamespace(
        model=SimpleNamespace(weights=weights, name="dense", count_params=lambda: 6),
        optimizer=SimpleNamespace(variables=list, rule="sgd", learning_rate=0.1),
        data=SimpleNamespace(label="MNIST"), images=960, global_batch=batch, seed=0, **more,
    )  # fmt: skip


def test_what_was_saved_is_restored_with_its_step(tmp_path):
    checkpoints.save(job(weight=7.0), tmp_path / "new", 40)
    other = job()
    assert checkpoints.restore(other, tmp_path / "new") == 40
    assert other.model.weights[0].value.tolist() == [[7.0] * 3] * 2


def test_a_checkpoint_of_another_training_is_not_taken(tmp_path):
    checkpoints.save(job(batch=64), tmp_path, 40)
    with pytest.raises(LabError, match=r"batches of 64.* this one is .*batches of 32"):
        checkpoints.restore(job(batch=32), tmp_path)


def test_a_checkpoint_is_written_every_so_many_steps_also_across_epochs(tmp_path, monkeypatch):
    """20 steps an epoch: calls end there, and where a checkpoint is due."""
    calls, saved = [], []
    monkeypatch.setattr(checkpoints, "import_tensorflow", lambda: SimpleNamespace(constant=int))
    monkeypatch.setattr(checkpoints, "save", lambda job, folder, step: saved.append(step))
    for index in (0, 1):  # worker 1 trains, and writes nothing
        one = job(
            replicas=SimpleNamespace(index=index), steps_per_epoch=20, order=int,
            run_steps=lambda *call: calls.append(call), synchronize=lambda: None,
        )  # fmt: skip
        assert checkpoints.train(one, tmp_path, steps=35, every=15) == 0
    assert calls == [(0, 0, 15), (0, 15, 5), (1, 0, 10), (1, 10, 5)] * 2
    assert saved == [15, 30, 35]


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_damaged_checkpoint_is_named(content, tmp_path):
    path = checkpoints.save(job(), tmp_path, 40)
    path.write_bytes(content or path.read_bytes()[:100])
    with pytest.raises(LabError, match=r"checkpoint\.npz"):
        checkpoints.restore(job(), tmp_path)


def test_nothing_but_numbers_is_read(tmp_path):
    # A pickle in a checkpoint could run anything.
    np.savez(tmp_path / "checkpoint.npz", step=np.array([{}], dtype=object), training="this one")
    with pytest.raises(LabError, match="cannot be read"):
        checkpoints.restore(job(), tmp_path)
