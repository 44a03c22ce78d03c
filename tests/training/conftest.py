"""Four logical CPUs and a small data set that can be learnt, for all tests of the training room."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import labkit


@pytest.fixture(scope="session")
def one(four):
    return labkit.replicas(devices=["cpu:0"])


@pytest.fixture(scope="session")
def two(four):
    return labkit.replicas(2, devices="cpu")


@pytest.fixture(scope="session")
def data():
    """Ten patterns under noise, in the shapes and types of MNIST."""
    random = np.random.default_rng(7)
    patterns = random.integers(0, 256, (10, 28, 28))

    def split(count):
        labels = random.integers(0, 10, count).astype(np.uint8)
        noise = random.integers(0, 256, (count, 28, 28))
        return (0.4 * patterns[labels] + 0.6 * noise).astype(np.uint8), labels

    x_train, y_train = split(12_800)
    x_test, y_test = split(1_234)
    return SimpleNamespace(
        name="patterns", label="patterns", classes=10, origin="synthetic",
        x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test,
    )  # fmt: skip
