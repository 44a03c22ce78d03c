"""ResNet-56 on CIFAR-100, on two replicas: the same weights as the serial program.

    python 17_resnet.py

It needs TensorFlow and nothing else. The lecture "Precision, XLA and batch statistics" reads it
part by part.
"""

import keras
import numpy as np
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
if len(gpus) < 2:  # then two logical CPUs, made before TensorFlow is used
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
devices = ["/gpu:0", "/gpu:1"] if len(gpus) >= 2 else ["/cpu:0", "/cpu:1"]

graph = len(gpus) >= 2  # on CPUs, making the graph takes longer than the step

try:
    (x, y), _ = keras.datasets.cifar100.load_data()
except Exception as problem:  # no network: a pattern for each class under noise
    print(f"CIFAR-100 is not here ({problem}): synthetic images instead.")
    random = np.random.default_rng(0)
    y = random.integers(0, 100, (512, 1))
    noise = random.integers(0, 256, (512, 32, 32, 3))
    x = 0.5 * random.integers(0, 256, (100, 32, 32, 3))[y[:, 0]] + 0.5 * noise
x, y = x[:512] / 255.0, y[:512, 0].astype("int32")

# --- The program of the lecture begins here.


def convolution(inputs, filters, stride=1, size=3):
    layer = keras.layers.Conv2D(filters, size, stride, padding="same", use_bias=False)
    return keras.layers.BatchNormalization()(layer(inputs))


def resnet(n, classes=100):
    """A residual network of depth 6n + 2 for images of 32 by 32."""
    keras.config.set_dtype_policy("float64")  # for the proof
    inputs = keras.Input((32, 32, 3))
    now = keras.layers.ReLU()(convolution(inputs, 16))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(n):
            stride = 2 if stage and block == 0 else 1
            inner = keras.layers.ReLU()(convolution(now, filters, stride))
            inner = convolution(inner, filters)
            if now.shape != inner.shape:
                now = convolution(now, filters, stride, size=1)
            now = keras.layers.ReLU()(keras.layers.add([now, inner]))
    logits = keras.layers.Dense(classes)(keras.layers.GlobalAveragePooling2D()(now))
    keras.config.set_dtype_policy("float32")
    return keras.Model(inputs, logits)


global_batch, steps = 8, 1


def trained(strategy, slices=1):
    """The loss and the weights after the steps; each replica divides its part into slices."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = resnet(n=9)
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)
    variables = model.trainable_variables

    def step(images, labels):
        total, loss = [0.0] * len(variables), 0.0
        for part in zip(tf.split(images, slices), tf.split(labels, slices)):
            with tf.GradientTape() as tape:
                logits = model(part[0], training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(part[1], logits)
                part_loss = tf.reduce_sum(losses) / global_batch
            total = [a + b for a, b in zip(total, tape.gradient(part_loss, variables))]
            loss += part_loss
        optimizer.apply(total, variables)
        return loss

    return run_steps(strategy, step), [variable.numpy() for variable in variables]


def run_steps(strategy, step):
    """The loss of each step."""

    def train_step(images, labels):
        losses = strategy.run(step, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    if graph:
        train_step = tf.function(train_step)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(global_batch).take(steps)
    batches = strategy.experimental_distribute_dataset(batches)
    return [float(train_step(images, labels)) for images, labels in batches]


def difference_of(weights, others):
    return max(float(np.abs(a - b).max()) for a, b in zip(weights, others))


def mirrored(devices):
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


no_strategy = tf.distribute.get_strategy()
loss, whole = trained(no_strategy)
print(f"depth 56, {sum(value.size for value in whole):,} weights, loss {loss[0]:.3f}")
_, sliced = trained(no_strategy, slices=2)


_, two_replicas = trained(mirrored(devices))
same = difference_of(two_replicas, whole) < 1e-6
print(f"two replicas, serial with the whole batch: {same}")
same = difference_of(two_replicas, sliced) < 1e-6
print(f"two replicas, serial with two slices:      {same}")
