"""What the network of the judges computes: of a grader's disk, no answer sees this folder."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def forward(weights: Sequence[Any], images: Any) -> tuple[Any, Any, Any]:
    """The inputs of both layers, and the logits."""
    kernel, bias, last_kernel, last_bias = weights
    pixels = images.reshape(len(images), -1).astype(float)
    hidden = np.maximum(pixels @ kernel + bias, 0)
    return pixels, hidden, hidden @ last_kernel + last_bias


def gradients(weights: Sequence[Any], images: Any, labels: Any, by: int) -> tuple[list[Any], Any]:
    """Of the cross-entropy, summed and divided by a number; and the loss of each image."""
    last_kernel = weights[2]
    pixels, hidden, logits = forward(weights, images)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = exponentials / exponentials.sum(axis=1, keepdims=True)
    losses = -np.log(shares[np.arange(len(labels)), labels])
    of_logits = (shares - np.eye(len(last_kernel.T))[labels]) / by
    of_hidden = of_logits @ last_kernel.T * (hidden > 0)
    found = [
        pixels.T @ of_hidden, of_hidden.sum(axis=0), hidden.T @ of_logits, of_logits.sum(axis=0)
    ]  # fmt: skip
    return found, losses


def of_layers(
    layers: Sequence[tuple[str, str]],
    weights: Mapping[str, Any],
    x: Any,
    error: Callable[[Any], Any],
    relu: bool,
) -> dict[str, Any]:
    """The gradients of Linear layers, by the names of their weights, which several may share.

    Between layers is a ReLU, and with `relu` behind the last one; `error` is the gradient of its
    result.
    """
    inputs = [x.astype(float)]
    for number, (weight, bias) in enumerate(layers, 1):
        inputs.append(inputs[-1] @ weights[weight].T + weights.get(bias, 0.0))
        if relu or number < len(layers):
            inputs[-1] = np.maximum(inputs[-1], 0)
    behind, found = error(inputs[-1]), dict[str, Any]()
    for number in range(len(layers), 0, -1):
        if relu or number < len(layers):
            behind = behind * (inputs[number] > 0)
        weight, bias = layers[number - 1]
        found[weight] = found.get(weight, 0.0) + behind.T @ inputs[number - 1]
        found[bias] = behind.sum(axis=0)
        behind = behind @ weights[weight]
    return found
