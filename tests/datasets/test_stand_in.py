"""The drawn stand-ins: same form as the real data, something to learn, nothing leaked."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from labkit.datasets.archives import Arrays, content_sha256
from labkit.datasets.digits import draw_digits
from labkit.datasets.draws import Draws
from labkit.datasets.scenes import draw_scenes
from labkit.datasets.sources import CIFAR100, MNIST

BOTH = pytest.mark.parametrize(
    ("which", "source"), [("mnist_stand_in", MNIST), ("cifar_stand_in", CIFAR100)]
)


def arrays_of(data):
    return Arrays(data.x_train, data.y_train, data.x_test, data.y_test)


@BOTH
def test_has_the_form_of_the_real_data(which, source, request):
    data = request.getfixturevalue(which)
    expected = [
        (source.train, *source.shape), (source.train,), (source.test, *source.shape), (source.test,)
    ]  # fmt: skip
    assert [array.shape for array in arrays_of(data)] == expected
    assert {array.dtype for array in arrays_of(data)} == {np.dtype(np.uint8)}
    for labels, count in ((data.y_train, source.train), (data.y_test, source.test)):
        assert np.bincount(labels).tolist() == [count // source.classes] * source.classes


@BOTH
def test_is_the_same_on_every_machine(which, source, request):
    """The checksum is pinned in sources.py: another drawing needs a new recipe number."""
    assert content_sha256(arrays_of(request.getfixturevalue(which))) == source.drawn_sha256


@BOTH
def test_no_image_occurs_twice_within_or_across_the_splits(which, source, request):
    data = request.getfixturevalue(which)
    both = [images.reshape(len(images), -1) for images in (data.x_train, data.x_test)]
    distinct = {row.tobytes() for images in both for row in images}
    assert len(distinct) == source.train + source.test


@BOTH
def test_labels_come_in_random_order(which, source, request):
    labels = request.getfixturevalue(which).y_train.astype(int)
    same_as_next = np.mean(labels[1:] == labels[:-1])
    assert abs(same_as_next - 1 / source.classes) < 0.01


def test_grey_levels_are_those_of_mnist(mnist_stand_in):
    """MNIST: mean 33.3, standard deviation 78.6, four fifths of the pixels empty."""
    images = mnist_stand_in.x_train
    assert 28 < images.mean() < 38
    assert 70 < images.std() < 85
    assert 0.7 < np.mean(images == 0) < 0.87


def softmax_regression(x, y, classes, steps=600, batch=250):
    """Weights and bias of a linear classifier: plain NumPy, nothing of labkit's."""
    rng = np.random.default_rng(0)
    weights, bias = np.zeros((x.shape[1], classes), np.float32), np.zeros(classes, np.float32)
    for _ in range(steps):
        some = rng.integers(0, len(x), batch)
        scores = x[some] @ weights + bias
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(batch), y[some]] -= 1
        weights -= 0.1 / batch * (x[some].T @ chances)
        bias -= 0.1 / batch * chances.sum(axis=0)
    return weights, bias


def flat(images):
    return images.reshape(len(images), -1).astype(np.float32) / 255


def test_digits_are_learnable_from_training_to_test_images(mnist_stand_in):
    (x, y), (x_test, y_test) = mnist_stand_in
    x, y, x_test = flat(x[:12000]), y[:12000].astype(int), flat(x_test)
    weights, bias = softmax_regression(x, y, 10)
    accuracy = np.mean((x_test @ weights + bias).argmax(axis=1) == y_test)
    assert 0.78 < accuracy < 0.95  # learnable, and not so easy that a line divides everything
    shuffled = np.random.default_rng(1).permutation(y)
    weights, bias = softmax_regression(x, shuffled, 10)
    assert np.mean((x_test @ weights + bias).argmax(axis=1) == y_test) < 0.2


def test_a_group_of_scenes_is_told_by_its_ground_and_a_line_is_not_enough(cifar_stand_in):
    (x, y), (x_test, y_test) = cifar_stand_in

    # Roughness between neighbours tells grass from clouds: a simple feature that generalises.
    def roughness(images):
        grey = images.astype(np.int16).sum(axis=3)
        return np.median(np.abs(np.diff(grey, axis=2)).reshape(len(images), -1), axis=1)

    rough, train_rough = roughness(x_test), roughness(x[:5000])
    border = np.median(train_rough)
    assert np.mean((rough > border) == (y_test >= 50)) > 0.65
    weights, bias = softmax_regression(
        flat(x[:10000]) - 0.35, y[:10000].astype(int), 100, steps=300
    )
    accuracy = np.mean(((flat(x_test) - 0.35) @ weights + bias).argmax(axis=1) == y_test)
    assert 0.02 < accuracy < 0.2


@pytest.mark.parametrize("draw", [draw_digits, draw_scenes])
def test_a_seed_gives_its_images_and_a_split_or_another_seed_gives_others(draw):
    images, labels = draw(150, 5, 0)
    again, same_labels = draw(150, 5, 0)
    assert np.array_equal(images, again)
    assert np.array_equal(labels, same_labels)
    for other in (draw(150, 5, 1), draw(150, 6, 0)):
        seen = {image.tobytes() for image in images}
        assert not any(image.tobytes() in seen for image in other[0])
        assert not np.array_equal(labels, other[1])


@pytest.mark.parametrize("draw", ["digits.draw_digits", "scenes.draw_scenes"])
def test_another_process_on_a_plainer_processor_draws_the_same(draw):
    """Without NumPy's vector instructions: what an older or another processor would compute."""
    room, name = draw.split(".")
    code = (
        "import hashlib\n"
        f"from labkit.datasets.{room} import {name}\n"
        f"print(hashlib.sha256({name}(60, 5, 0)[0].tobytes()).hexdigest())"
    )
    features = "AVX512F AVX512CD AVX512_SKX AVX2 FMA3"
    from numpy._core._multiarray_umath import __cpu_baseline__, __cpu_features__

    off = [f for f in (*features.split(), "X86_V3", "X86_V4")
           if __cpu_features__.get(f) and f not in __cpu_baseline__]  # fmt: skip
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **extra}, capture_output=True,
            text=True, check=True, timeout=60,
        ).stdout
        for extra in ({}, {"NPY_DISABLE_CPU_FEATURES": " ".join(off)})
    ]  # fmt: skip
    assert found[0] == found[1] != ""


def test_progress_reaches_the_number_of_images():
    told = []
    draw_digits(1100, 1, 0, told.append)
    assert told == [500, 1000, 1100]


def test_random_numbers_stay_in_their_range_and_look_even():
    draws = Draws(3)
    even = draws.uniform(20000, low=-1, high=3)
    assert -1 <= even.min() < -0.99
    assert 2.99 < even.max() <= 3
    bell = draws.bell(20000, wide=2.0)
    assert abs(bell.std() - 2) < 0.05
    assert abs(bell).max() <= 7
    assert set(draws.pick(1000, 7).tolist()) == set(range(7))
    assert sorted(draws.labels(23, 5).tolist()) == sorted(i % 5 for i in range(23))
