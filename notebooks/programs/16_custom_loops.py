"""A custom training loop on two replicas: warm-up, accumulation, clipping, and resuming.

    python 16_custom_loops.py

It needs TensorFlow and nothing else. The lecture "Custom training loops" reads it part by part.
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
tf.config.experimental.enable_tensor_float_32_execution(False)  # GPUs: round as float32 does

try:
    (x, y), _ = keras.datasets.mnist.load_data()
except Exception as problem:  # no network: ten patterns under noise, in the shape of MNIST
    print(f"MNIST is not here ({problem}): synthetic images instead.")
    random = np.random.default_rng(0)
    y = random.integers(0, 10, 10_000)
    noise = random.integers(0, 256, (10_000, 28, 28))
    x = 0.2 * random.integers(0, 256, (10, 28, 28))[y] + 0.8 * noise
x, y = x[:10_000].astype("float32") / 255, y[:10_000].astype("int32")

# --- The program of the lecture begins here.

strategy = tf.distribute.MirroredStrategy(devices)
global_batch, micro_batches, clip_norm, steps = 128, 4, 1.0, 60


def batches_after(done):
    images = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1).repeat()
    images = images.batch(global_batch).skip(done).prefetch(tf.data.AUTOTUNE)
    return iter(strategy.experimental_distribute_dataset(images))


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """In equal parts to the peak in warm_up_steps, then along a cosine to 0 at steps."""

    def __init__(self, peak, warm_up_steps, steps):
        self.peak, self.warm_up_steps, self.steps = peak, warm_up_steps, steps

    def __call__(self, step):
        """The rate of the update with this number."""
        step = tf.cast(step, tf.float32)
        rising = (step + 1) / self.warm_up_steps
        done = (step - self.warm_up_steps) / (self.steps - self.warm_up_steps)
        falling = 0.5 * (1 + tf.cos(np.pi * tf.clip_by_value(done, 0, 1)))
        return self.peak * tf.minimum(rising, falling)

    def get_config(self):
        """What Keras saves with a model."""
        return {"peak": self.peak, "warm_up_steps": self.warm_up_steps, "steps": self.steps}


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
    schedule = WarmUp(peak=0.2, warm_up_steps=10, steps=steps)
    optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)


def step(images, labels):
    variables = model.trainable_variables
    total, loss = [tf.zeros_like(variable) for variable in variables], 0.0
    for part in tf.range(micro_batches):
        tf.autograph.experimental.set_loop_options(parallel_iterations=1)
        with tf.GradientTape() as tape:
            logits = model(images[part::micro_batches], training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels[part::micro_batches], logits
            )
            micro_loss = tf.reduce_sum(losses) / global_batch
        gradients = tape.gradient(micro_loss, variables)
        total = [a + b for a, b in zip(total, gradients)]
        loss += micro_loss
    return total, loss


@tf.function
def train(batches, steps):
    loss = tf.constant(0.0)
    for _ in tf.range(steps):
        images, labels = next(batches)
        each, losses = strategy.run(step, args=(images, labels))
        total = [strategy.reduce("SUM", gradient, axis=None) for gradient in each]
        total, _ = tf.clip_by_global_norm(total, clip_norm)
        optimizer.apply(total, model.trainable_variables)
        loss = strategy.reduce("SUM", losses, axis=None)
    return loss


with tempfile.TemporaryDirectory() as folder:
    start = checkpoint.write(f"{folder}/start")
    loss = train(batches_after(0), tf.constant(steps))
    print(f"loss after {steps} steps: {float(loss):.4f}")
    expected = [variable.numpy() for variable in model.trainable_variables]

    checkpoint.restore(start)
    train(batches_after(0), tf.constant(25))
    saved = checkpoint.write(f"{folder}/saved")
    for variable in model.variables + optimizer.variables:
        variable.assign(tf.ones_like(variable))
    checkpoint.restore(saved)
    done = int(optimizer.iterations.numpy())
    train(batches_after(done), tf.constant(steps - done))

pairs = zip(model.trainable_variables, expected)
same = all(np.allclose(variable.numpy(), value, atol=1e-5) for variable, value in pairs)
print(f"interrupted after {done} steps, resumed to the same weights: {same}")
