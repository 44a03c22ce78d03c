"""diagnose on a model and on data that exist."""

from __future__ import annotations

import pytest

from labkit.kinds import LabError
from labkit.training import diagnose


@pytest.fixture(scope="module")
def keras(four):
    from labkit.hardware.devices import import_tensorflow

    import_tensorflow()
    import keras

    return keras


def compiled(keras, loss, *layers):
    made = keras.Sequential([keras.Input((4,)), *layers])
    made.compile("adam", loss)
    return made


def test_a_loss_for_probabilities_on_logits_is_found(keras):
    for loss in (
        "categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(),
        keras.losses.categorical_crossentropy,
    ):
        model = compiled(keras, loss, keras.layers.Dense(3), keras.layers.Dropout(0.1))
        assert diagnose(model=model).names == ("loss",)


def test_a_loss_for_logits_on_probabilities_is_found(keras):
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    for layers in (
        [keras.layers.Dense(3, activation="softmax")],
        [keras.layers.Dense(3), keras.layers.Softmax()],
        [keras.layers.Dense(3), keras.layers.Activation("softmax")],
    ):
        assert diagnose(model=compiled(keras, loss, *layers)).names == ("loss",)


def test_a_loss_that_fits_is_left_alone(keras):
    logits = keras.losses.CategoricalCrossentropy(from_logits=True)
    assert not diagnose(model=compiled(keras, logits, keras.layers.Dense(3)))
    assert not diagnose(model=compiled(keras, "mse", keras.layers.Dense(3)))
    softmax = keras.layers.Dense(3, activation="softmax")
    assert not diagnose(model=compiled(keras, "categorical_crossentropy", softmax))


def test_labels_of_the_other_kind_are_found_in_arrays_and_in_pipelines(keras):
    import numpy as np
    import tensorflow as tf

    x, y = np.zeros((6, 4), "float32"), np.array([0, 1, 2, 0, 1, 2])
    wide = np.eye(3, dtype="float32")[y]
    softmax = keras.layers.Dense(3, activation="softmax")
    sparse = compiled(keras, "sparse_categorical_crossentropy", softmax)
    softmax = keras.layers.Dense(3, activation="softmax")
    categorical = compiled(keras, "categorical_crossentropy", softmax)
    for model, good, bad in ((sparse, y, wide), (categorical, wide, y)):
        for labels, names in ((good, ()), (bad, ("labels",))):
            pipeline = tf.data.Dataset.from_tensor_slices((x, labels)).batch(2)
            assert diagnose(model=model, data=(x, labels)).names == names
            assert diagnose(model=model, data=pipeline).names == names


def test_double_precision_and_uneven_batches_are_found(keras):
    import numpy as np
    import tensorflow as tf

    x = np.zeros((9, 4))
    assert diagnose(data=x).names == ("float64",)
    assert not diagnose(data=x.astype("float32"))
    pipeline = tf.data.Dataset.from_tensor_slices(x.astype("float32"))
    assert not diagnose(data=pipeline.batch(8), replicas=4)
    assert diagnose(data=pipeline.batch(6), replicas=4).names == ("batch",)
    assert diagnose(data=pipeline.batch(6, drop_remainder=True), replicas=4).names == ("batch",)
    assert diagnose(data=pipeline.map(lambda v: tf.cast(v, "float64")).batch(2)).names == (
        "float64",
    )


def test_a_pipeline_without_end_is_not_read_to_its_end(keras):
    import tensorflow as tf

    endless = tf.data.Dataset.from_tensors(tf.zeros(4)).repeat().batch(3)
    assert diagnose(data=endless, replicas=2).names == ("batch",)


def test_what_is_no_model_or_no_data_is_said(keras):
    with pytest.raises(LabError, match="no Keras model"):
        diagnose(model=3)
    with pytest.raises(LabError, match="no loss yet"):
        diagnose(model=keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    with pytest.raises(LabError, match="cannot be looked at"):
        diagnose(data={"x": 1})
    with pytest.raises(LabError, match="replicas="):
        diagnose(data=__import__("numpy").zeros((4, 4)), replicas="two")
