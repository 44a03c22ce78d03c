"""The models of the course: one computes little for each byte of its gradients, the others much."""

from typing import Any

from labkit.hardware.devices import import_tensorflow


def dense(shape: tuple[int, ...] = (28, 28), classes: int = 10, dropout: float = 0.2) -> Any:
    """Returns Flatten, Dense 128, Dropout, Dense: 101,770 parameters on MNIST, hardly any work."""
    import_tensorflow()
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input(shape),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            _dropout(dropout),
            layers.Dense(classes),
        ],
        name="dense",
    )


def convolutional(
    shape: tuple[int, ...] = (28, 28), classes: int = 10, dropout: float = 0.2
) -> Any:
    """Returns two convolutions and a small head: 1/8 of the parameters, 9 times the work."""
    import_tensorflow()
    from keras import Input, Sequential, layers

    image = shape if len(shape) == 3 else (*shape, 1)
    return Sequential(
        [
            Input(shape),
            layers.Reshape(image),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            _dropout(dropout),
            layers.Dense(classes),
        ],
        name="convolutional",
    )


def transformer(shape: tuple[int, ...] = (28, 28), classes: int = 10, dropout: float = 0.2) -> Any:
    """Returns two blocks of attention over the rows of an image: 401,546 parameters, much work.

    Each row of pixels is a token; the blocks are 128 wide and have four heads.
    """
    tf = import_tensorflow()
    from keras import Input, Model, layers

    def each_token(width: int, **more: Any) -> Any:  # a Dense whose gradients have a known shape
        return layers.EinsumDense("btc,cd->btd", (shape[0], width), bias_axes="d", **more)

    rows = Input(shape)
    tokens = each_token(128)(layers.Reshape((shape[0], -1))(rows))  # (batch, rows, 128)
    for _ in range(2):
        normal = layers.LayerNormalization()(tokens)
        tokens = layers.Add()([tokens, layers.MultiHeadAttention(4, 32)(normal, normal)])
        hidden = each_token(512, activation=tf.nn.gelu)(layers.LayerNormalization()(tokens))
        tokens = layers.Add()([tokens, each_token(128)(hidden)])
    pooled = _dropout(dropout)(layers.GlobalAveragePooling1D()(tokens))
    return Model(rows, layers.Dense(classes)(pooled), name="transformer")


def _dropout(rate: float) -> Any:
    """Returns Keras' Dropout layer, which computes differently while this model is trained here.

    Keras keeps the state of its random numbers in a variable of which every replica has an equal
    copy: all replicas would drop the same units. A saved model has Keras' own layer.
    """
    tf = import_tensorflow()
    import keras

    def call(inputs: Any, training: bool = False) -> Any:
        if not (training and rate):
            return inputs
        # floor(u + keep) is 1 with probability keep: a tenth of a step faster than Keras'.
        shape, keep = tf.shape(inputs), 1 - rate
        return inputs * (tf.floor(tf.random.uniform(shape, dtype=inputs.dtype) + keep) * (1 / keep))

    layer = keras.layers.Dropout(rate)
    layer.call = call
    return layer


MODELS = {"dense": dense, "convolutional": convolutional, "transformer": transformer}
