"""Demand forecast with Keras fit and checkpoints to resume from."""

import argparse
import pathlib

import keras
import numpy as np


def windows(count, rng):
    series = np.cumsum(rng.normal(size=(count, 96)), axis=1).astype("float32") / 10
    return series[:, :-1], series[:, -1:]


def build(units):
    inputs = keras.Input((95,))
    x = inputs
    for _ in range(3):
        x = keras.layers.Dense(units, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(optimizer="adam", loss="mse")
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--windows", type=int, default=12_800)
    ap.add_argument("--dir", default="ckpt")
    a = ap.parse_args()
    keras.utils.set_random_seed(1)
    x, y = windows(a.windows, np.random.default_rng(1))
    pathlib.Path(a.dir).mkdir(exist_ok=True)
    save = keras.callbacks.ModelCheckpoint(f"{a.dir}/model.keras", save_freq=10)
    history = build(512).fit(x, y, batch_size=64, epochs=a.epochs, callbacks=[save], verbose=2)
    print(f"loss {history.history['loss'][-1]:.5f}")


if __name__ == "__main__":
    main()
