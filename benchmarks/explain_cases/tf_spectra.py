"""Spectrogram classifier; the features are computed in the input pipeline."""

import argparse

import tensorflow as tf


def spectrogram(wave, label):
    frames = tf.signal.stft(wave, frame_length=512, frame_step=64)
    mel = tf.signal.linear_to_mel_weight_matrix(64, 257, 8000)
    return tf.math.log1p(tf.abs(frames) @ mel)[:60], label


def pipeline(clips, batch):
    waves = tf.random.stateless_normal((clips, 8000), seed=(1, 2))
    labels = tf.range(clips) % 4
    data = tf.data.Dataset.from_tensor_slices((waves, labels))
    return data.map(spectrogram).batch(batch)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--clips", type=int, default=1600)
    args = ap.parse_args()
    tf.keras.utils.set_random_seed(0)
    net = tf.keras.Sequential(
        [
            tf.keras.layers.Conv1D(64, 5, activation="relu"),
            tf.keras.layers.Conv1D(64, 5, activation="relu"),
            tf.keras.layers.GlobalAveragePooling1D(),
            tf.keras.layers.Dense(4),
        ]
    )
    optimizer = tf.keras.optimizers.Adam()
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, net(x, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        )
        return loss

    data = pipeline(args.clips, 32)
    for epoch in range(args.epochs):
        for x, y in data:
            loss = step(x, y)
        tf.print("epoch", epoch, "loss", loss)
    print(f"loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
