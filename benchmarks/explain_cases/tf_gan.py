"""A small GAN on two-dimensional rings."""

import argparse

import tensorflow as tf
from tensorflow import keras


def mlp(inputs, outputs):
    return keras.Sequential(
        [keras.layers.Input((inputs,))]
        + [keras.layers.Dense(64, activation="relu") for _ in range(4)]
        + [keras.layers.Dense(outputs)]
    )


class GAN:
    def __init__(self, noise=8):
        self.noise = noise
        self.generator, self.critic = mlp(noise, 2), mlp(2, 1)
        self.g_opt, self.c_opt = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
        self.bce = keras.losses.BinaryCrossentropy(from_logits=True)

    def step(self, real, z):
        with tf.GradientTape() as g_tape, tf.GradientTape() as c_tape:
            fake = self.generator(z, training=True)
            on_real, on_fake = self.critic(real), self.critic(fake)
            g_loss = self.bce(tf.ones_like(on_fake), on_fake)
            c_loss = self.bce(tf.ones_like(on_real), on_real) + self.bce(
                tf.zeros_like(on_fake), on_fake
            )
        g_vars, c_vars = self.generator.trainable_variables, self.critic.trainable_variables
        self.g_opt.apply_gradients(zip(g_tape.gradient(g_loss, g_vars), g_vars))
        self.c_opt.apply_gradients(zip(c_tape.gradient(c_loss, c_vars), c_vars))
        return g_loss, c_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    gan = GAN()
    source = tf.random.Generator.from_seed(0)
    for i in range(args.steps):
        angle = source.uniform((args.batch, 1), 0, 6.2832)
        real = tf.concat([tf.cos(angle), tf.sin(angle)], 1)
        g_loss, c_loss = gan.step(real, source.normal((args.batch, gan.noise)))
        if i % 50 == 0:
            print(f"{i}: critic {float(c_loss):.4f}", flush=True)
    print(f"generator {float(g_loss):.4f}")


if __name__ == "__main__":
    main()
