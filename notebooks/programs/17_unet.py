"""A U-Net for segmentation, on two replicas: the weights of the serial program.

    python 17_unet.py

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

# --- The program of the lecture begins here.


def shapes(number, size=16):
    random = np.random.default_rng(0)
    row, column = np.mgrid[:size, :size]
    images, masks = [], []
    for _ in range(number):
        middle, radius = random.uniform(4, 12, 2), random.uniform(2, 4)
        down, right = np.abs(row - middle[0]), np.abs(column - middle[1])
        disc, square = np.hypot(down, right) < radius, np.maximum(down, right) < radius
        masks.append(disc if random.random() < 0.5 else square)
        images.append(0.5 * masks[-1] + random.normal(0.2, 0.2, (size, size)))
    return np.array(images)[..., None], np.array(masks)[..., None].astype("float64")


def convolutions(now, filters, synchronized):
    for _ in range(2):
        now = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(now)
        now = keras.layers.BatchNormalization(synchronized=synchronized)(now)
        now = keras.layers.ReLU()(now)
    return now


def unet(synchronized):
    keras.config.set_dtype_policy("float64")  # for the proof
    inputs = keras.Input((16, 16, 1))
    skips, now = [], inputs
    for filters in (4, 8):
        now = convolutions(now, filters, synchronized)
        skips.append(now)
        now = keras.layers.MaxPooling2D()(now)
    now = convolutions(now, 16, synchronized)
    for filters in (8, 4):
        now = keras.layers.Conv2DTranspose(filters, 2, 2)(now)
        now = keras.layers.concatenate([skips.pop(), now])
        now = convolutions(now, filters, synchronized)
    logits = keras.layers.Conv2D(1, 1)(now)
    keras.config.set_dtype_policy("float32")
    return keras.Model(inputs, logits)


def train_unet(strategy, synchronized, global_batch=16, steps=20):
    images, masks = shapes(global_batch * steps)
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = unet(synchronized)
        optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
        optimizer.build(model.trainable_variables)

    def step(images, masks):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            pixels = tf.nn.sigmoid_cross_entropy_with_logits(masks, logits)
            losses = tf.reduce_mean(pixels, axis=[1, 2, 3])
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    run = tf.function(lambda *batch: strategy.run(step, args=batch))
    batches = tf.data.Dataset.from_tensor_slices((images, masks)).batch(global_batch)
    for batch in strategy.experimental_distribute_dataset(batches):
        run(*batch)
    return model, [variable.numpy() for variable in model.trainable_variables]


def intersection_over_union(model, images, masks):
    found, masks = model(images, training=True).numpy() > 0, masks > 0
    return (found & masks).sum() / (found | masks).sum()


serial_unet, expected = train_unet(tf.distribute.get_strategy(), synchronized=False)
quality = intersection_over_union(serial_unet, *shapes(64))
print(f"serial U-Net after 20 steps: IoU {quality:.2f} on images that it was trained with")


def same_as_serial(weights):
    pairs = zip(weights, expected)
    return max(float(np.abs(a - b).max()) for a, b in pairs) < 1e-6


reduction = tf.distribute.ReductionToOneDevice()
double = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
own_unet = train_unet(double, synchronized=False)
print("two replicas, each with its own statistics, serial weights:", same_as_serial(own_unet[1]))


two_unet = train_unet(double, synchronized=True)
print("two replicas, synchronized statistics, serial weights:      ", same_as_serial(two_unet[1]))
