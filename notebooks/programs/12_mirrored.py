"""One training program on two replicas: tf.distribute.MirroredStrategy with a custom loop.

    python 12_mirrored.py

It needs TensorFlow and nothing else. The lecture "MirroredStrategy" reads it line by line.
"""

import tempfile

import keras
import numpy as np
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
if len(gpus) < 2:  # then two logical CPUs, made before TensorFlow is used
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
devices = ["/gpu:0", "/gpu:1"] if len(gpus) >= 2 else ["/cpu:0", "/cpu:1"]

try:
    (x, y), (x_test, y_test) = keras.datasets.mnist.load_data()
except Exception as problem:  # no network: ten patterns under noise, in the shape of MNIST
    print(f"MNIST is not here ({problem}): synthetic images instead.")
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 12_000)
    noise = random.integers(0, 256, (12_000, 28, 28))
    images = 0.2 * random.integers(0, 256, (10, 28, 28))[labels] + 0.8 * noise
    x, y, x_test, y_test = images[:10_000], labels[:10_000], images[10_000:], labels[10_000:]
x, x_test = x.astype("float32") / 255, x_test.astype("float32") / 255
y, y_test = y.astype("int32"), y_test.astype("int32")

# --- The program of the lecture begins here.

strategy = tf.distribute.MirroredStrategy(devices)
global_batch = 64 * strategy.num_replicas_in_sync

train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000, seed=1)
train = train.batch(global_batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
train = strategy.experimental_distribute_dataset(train)


def test_of_one_worker(context):
    images = tf.data.Dataset.from_tensor_slices((x_test, y_test))
    images = images.shard(context.num_input_pipelines, context.input_pipeline_id)
    return images.batch(context.get_per_replica_batch_size(1000))


test = strategy.distribute_datasets_from_function(test_of_one_worker)

with strategy.scope():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(0.1)
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)


def step(images, labels):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        per_image = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.nn.compute_average_loss(per_image, global_batch_size=global_batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def train_step(images, labels):
    per_replica = strategy.run(step, args=(images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)


@tf.function
def test_step(images, labels):
    def evaluate(images, labels):
        accuracy.update_state(labels, model(images, training=False))

    strategy.run(evaluate, args=(images, labels))


def test_accuracy():
    accuracy.reset_state()
    for images, labels in test:
        test_step(images, labels)
    return float(accuracy.result())


for epoch in range(2):
    of_steps = [float(train_step(images, labels)) for images, labels in train]
    loss = sum(of_steps) / len(of_steps)
    print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {100 * test_accuracy():.1f} %")

with tempfile.TemporaryDirectory() as folder:
    before = test_accuracy()
    path = checkpoint.save(f"{folder}/mirrored")
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable))
    checkpoint.restore(path)
    print(f"the checkpoint gives the same accuracy: {test_accuracy() == before}")
