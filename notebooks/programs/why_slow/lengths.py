"""Train on sentences of any length, with a falling learning rate: `python lengths.py`."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
embedding = tf.Variable(tf.random.stateless_normal((1000, 64), (0, 1)) / 8)
hidden = tf.Variable(tf.random.stateless_normal((64, 128), (0, 2)) / 8)
output = tf.Variable(tf.random.stateless_normal((128, 10), (0, 3)) / 11)
weights = [embedding, hidden, output]


@tf.function
def step(words, labels, rate):
    with tf.GradientTape() as tape:
        vectors = tf.gather(embedding, words)
        features = tf.reduce_mean(tf.nn.relu(vectors @ hidden), axis=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, features @ output)
        loss = tf.reduce_mean(losses)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(rate * tf.convert_to_tensor(gradient))
    return loss


for number in range(120):
    length = int(rng.integers(5, 200))
    words = tf.constant(rng.integers(0, 1000, (32, length)))
    labels = tf.constant(rng.integers(0, 10, 32))
    loss = step(words, labels, 0.1 / (1 + number))
    if number % 40 == 0:
        print(f"step {number}, loss {loss:.3f}")
