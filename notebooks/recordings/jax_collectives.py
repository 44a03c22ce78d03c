"""Which collectives JAX's compiler inserts on four CPU devices: recorded for lectures 43 and 63.

pip install jax keras; python jax_collectives.py    (in an environment of its own)
"""

import json
import os
import re
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"  # before JAX starts
os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

NAMES = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
whole, rows, columns = P(None, None), P("x", None), P(None, "x")


def collectives(function, *arrays):
    """Those in the compiled program, in order."""
    text = function.lower(*arrays).compile().as_text()
    return re.findall(rf"({NAMES})(?:-start)?\(", text)


def product(a, b, c):
    """Of C = A @ B, with these shardings."""
    multiply = jax.jit(jnp.matmul, out_shardings=NamedSharding(mesh, c))
    left = jax.device_put(jnp.ones((512, 1024)), NamedSharding(mesh, a))
    right = jax.device_put(jnp.ones((1024, 512)), NamedSharding(mesh, b))
    return collectives(multiply, left, right)


def scattered(a, b):
    """The same product with the collective written by hand."""
    return jax.lax.psum_scatter(a @ b, "x", tiled=True)


def halo(array):
    """Each device's neighbours' last and first rows, by hand."""
    down = jax.lax.ppermute(array[-1:], "x", [(n, n + 1) for n in range(3)])
    up = jax.lax.ppermute(array[:1], "x", [(n + 1, n) for n in range(3)])
    return jnp.concatenate([down, array, up])


cases = [
    (rows, whole, rows), (whole, columns, columns), (columns, rows, whole), (columns, rows, rows),
    (rows, whole, whole), (whole, columns, whole), (rows, rows, rows), (rows, columns, rows),
]  # fmt: skip
by_hand = jax.shard_map(scattered, mesh=mesh, in_specs=(columns, rows), out_specs=rows)
exchange = jax.shard_map(halo, mesh=mesh, in_specs=rows, out_specs=rows)
image = jax.device_put(
    jnp.ones((1, 64, 64, 1)), NamedSharding(mesh, P(None, "x", None, None))
)  # rows of an image over the devices
convolve = jax.jit(
    lambda x, k: jax.lax.conv_general_dilated(
        x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    ),
    out_shardings=NamedSharding(mesh, P(None, "x", None, None)),
)

grid = keras.distribution.DeviceMesh((1, 4), ["batch", "model"], jax.devices())
layouts = keras.distribution.LayoutMap(grid)
layouts["wide/kernel"] = (None, "model")
with keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch").scope():
    layer = keras.layers.Dense(64, name="wide")
    layer.build((None, 16))
shard = layer.kernel.value.addressable_shards[0].data.shape


def products():
    """The collectives of all cases."""
    return [{"a": str(a), "b": str(b), "c": str(c), "found": product(a, b, c)} for a, b, c in cases]


recording = {
    "by": "jax_collectives.py",
    "on": f"4 CPU devices, JAX {jax.__version__}, Keras {keras.__version__}",
    "when": time.strftime("%d %B %Y"),
    "products": products(),
    "psum_scatter": collectives(
        jax.jit(by_hand), np.ones((512, 1024), np.float32), np.ones((1024, 512), np.float32)
    ),
    "halo": collectives(jax.jit(exchange), np.ones((64, 64), np.float32)),
    "convolution": collectives(convolve, image, jnp.ones((3, 3, 1, 1))),
    "keras kernel on each device": list(shard),
}
jax.config.update("jax_use_shardy_partitioner", False)  # GSPMD; it logs that it will go
recording["the same with GSPMD"] = products() == recording["products"]
Path(__file__).with_suffix(".json").write_text(json.dumps(recording, indent=1) + "\n")
print(json.dumps(recording, indent=1))
