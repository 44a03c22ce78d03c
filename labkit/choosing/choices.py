"""The kinds of training that can be chosen, and what each is called in each framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from labkit.views.table import Table


class Choice(NamedTuple):
    """A kind of training: its lecture, what it does, its name in each framework ("": none)."""

    name: str
    lecture: int
    what: str
    called: tuple[str, ...]


FRAMEWORKS = ("TensorFlow", "PyTorch", "JAX", "Horovod")
READ = "November 2026"
CHOICES = {
    "federated": Choice("Federated learning", 25,
        "Each place trains on its own data and sends only updates of the weights.",
        ("Flower", "Flower", "Flower", "")),
    "one_device": Choice("One device", 2,
        "No communication at all. Make this fast before you add devices.",
        ("tf.distribute.OneDeviceStrategy, or nothing", "nothing", "jax.jit", "nothing")),
    "parameter_server": Choice("Parameter server", 15,
        "Workers fetch weights and send gradients at their own pace, without waiting.",
        ("tf.distribute.ParameterServerStrategy", "", "", "")),
    "mirrored": Choice("Mirrored, one machine", 3,
        "Every device holds the whole model, takes its share of the batch, averages gradients.",
        ("tf.distribute.MirroredStrategy", "DistributedDataParallel with torchrun",
         "NamedSharding of the batch", "DistributedOptimizer, DistributedGradientTape")),
    "multi_worker": Choice("Mirrored, several machines", 14,
        "As mirrored on one machine; the all-reduce also crosses the network.",
        ("tf.distribute.MultiWorkerMirroredStrategy",
         "DistributedDataParallel with torchrun on each machine",
         "jax.distributed.initialize, NamedSharding", "the same, with several hosts")),
    "accumulate": Choice("Smaller batch, accumulated", 7,
        "Several small steps add up their gradients before one update. Then ask again with the "
        "small batch.",
        ("a loop of your own; on one device Keras has gradient_accumulation_steps",
         "a loop of your own, with no_sync", "optax.MultiSteps", "backward_passes_per_step")),
    "central": Choice("Variables in the host's memory", 15,
        "The host keeps variables and optimizer; devices compute, and wait for the link to it.",
        ("tf.distribute.experimental.CentralStorageStrategy: experimental, does not shard, Keras 3 "
         "fit fails with Dropout",
         "fully_shard with CPUOffloadPolicy", 'memory_kind="pinned_host"', "")),
    "nothing": Choice("More memory first", 21,
        "Use more devices, shorter numbers, recomputed activations, or a smaller model.",
        ("",) * 4),
    "spatial": Choice("Spatial parallel", 20,
        "Each example is divided: every device has a part of the image or sequence.",
        ("by hand", "by hand; context_parallel for attention", "NamedSharding of positions", "")),
    "sharded": Choice("Sharded data parallel (ZeRO)", 21,
        "Data parallel; each device keeps a share of the state and gathers weights when needed.",
        ("", "fully_shard (FSDP2), DeepSpeed ZeRO", "NamedSharding of the parameters", "")),
    "hybrid": Choice("Hybrid parallel", 20,
        "Data × tensor × pipeline: tensor groups inside a machine, the others between machines.",
        ("DTensor, without pipeline", "DeviceMesh; torchtitan, Megatron-LM",
         "a Mesh of several axes; MaxText", "")),
    "tensor": Choice("Tensor parallel", 19,
        "Each layer is cut inside; devices exchange results within every layer.",
        ("tf.experimental.dtensor", "parallelize_module", "NamedSharding of the weights", "")),
    "pipeline": Choice("Pipeline parallel", 18,
        "Each device keeps some layers; micro-batches flow through, only activations are sent.",
        ("tf.device, by hand", "torch.distributed.pipelining", "shard_map, by hand", "")),
}  # fmt: skip


def frameworks() -> Table:
    """What each choice is called in each framework."""
    from labkit.views.table import Table

    rows = [(one.name, *(name or "none" for name in one.called)) for one in CHOICES.values()]
    note = f"{READ}; TensorFlow, PyTorch and Horovod as installed: 2.21, 2.13 and 0.28.1."
    return Table(("choice", *FRAMEWORKS), rows, "What a choice is called", note)
