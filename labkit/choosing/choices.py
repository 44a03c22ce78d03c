"""The questions of the guide, the choices, and what each is called in each framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from labkit.views.table import Table


class Choice(NamedTuple):
    """A kind of training: its lecture, what it does, its names in the frameworks ("": none)."""

    name: str
    lecture: int
    what: str
    called: tuple[str, ...]


FRAMEWORKS = ("TensorFlow", "PyTorch", "JAX", "Horovod")
READ = "November 2026"
# From the simplest on: the first of those that are as fast as each other is chosen.
CHOICES = {
    "federated": Choice("Federated learning", 61,
        "Each place trains on its own data and sends only updates of the weights.",
        ("Flower", "Flower", "Flower", "")),
    "one_device": Choice("One device", 11,
        "No communication at all. Make this fast before you add devices.",
        ("tf.distribute.OneDeviceStrategy, or nothing", "nothing", "jax.jit", "nothing")),
    "accumulate": Choice("Smaller batch, accumulated", 16,
        "One device; several small steps add up their gradients before one update.",
        ("a loop of your own; on one device Keras has gradient_accumulation_steps",
         "a loop of your own, with no_sync", "optax.MultiSteps", "backward_passes_per_step")),
    "trials": Choice("A training on each device", 35,
        "Independent trainings need no communication: each runs on a device of its own.",
        ("CUDA_VISIBLE_DEVICES for each process; KerasTuner", "the same; Ray Tune", "the same",
         "")),
    "mirrored": Choice("Mirrored, one machine", 12,
        "Every device holds the whole model, takes its share of the batch, averages gradients.",
        ("tf.distribute.MirroredStrategy", "DistributedDataParallel with torchrun",
         "NamedSharding of the batch", "DistributedOptimizer, DistributedGradientTape")),
    "multi_worker": Choice("Mirrored, several machines", 32,
        "As mirrored on one machine; the all-reduce also crosses the network.",
        ("tf.distribute.MultiWorkerMirroredStrategy",
         "DistributedDataParallel with torchrun on each machine",
         "jax.distributed.initialize, NamedSharding", "the same, with several hosts")),
    "experts": Choice("Expert parallel", 47,
        "Each device holds some experts; tokens travel to their experts and back.",
        ("by hand", "Megatron-LM, torchtitan; all_to_all_single by hand",
         "NamedSharding of the experts; MaxText", "")),
    "hsdp": Choice("Hybrid sharded (HSDP)", 44,
        "The devices of a machine share the state; gradients are averaged between machines.",
        ("", "fully_shard on a DeviceMesh of 2 axes", "NamedSharding on one of 2 axes", "")),
    "sharded": Choice("Sharded data parallel (ZeRO)", 44,
        "Data parallel; each device keeps a share of the state and gathers weights when needed.",
        ("", "fully_shard (FSDP2), DeepSpeed ZeRO", "NamedSharding of the parameters", "")),
    "embeddings": Choice("Sharded embeddings", 34,
        "Each device or server holds some rows of the tables; the rest is data parallel.",
        ("ParameterServerStrategy with a variable_partitioner; TPUEmbedding", "TorchRec",
         "NamedSharding of the tables", "")),
    "pipeline": Choice("Pipeline parallel", 40,
        "Each device keeps some layers; micro-batches flow through, only activations are sent.",
        ("tf.device, by hand", "torch.distributed.pipelining", "shard_map, by hand", "")),
    "tensor": Choice("Tensor parallel", 42,
        "Each layer is cut inside; devices exchange results within every layer.",
        ("tf.experimental.dtensor", "parallelize_module", "NamedSharding of the weights", "")),
    "hybrid": Choice("Hybrid parallel", 43,
        "Data × tensor × pipeline: tensor groups inside a machine, the others between machines.",
        ("DTensor, without pipeline", "DeviceMesh; torchtitan, Megatron-LM",
         "a Mesh of several axes; MaxText", "")),
    "context": Choice("Context parallel", 46,
        "Each device has some positions of a sequence; keys travel a ring, or heads are exchanged.",
        ("by hand", "context_parallel", "ring attention with shard_map", "")),
    "central": Choice("Variables in the host's memory", 34,
        "The host keeps variables and optimizer; devices compute, and wait for the link to it.",
        ("tf.distribute.experimental.CentralStorageStrategy: experimental, does not shard, Keras 3 "
         "fit fails with Dropout",
         "fully_shard with CPUOffloadPolicy", 'memory_kind="pinned_host"', "")),
    "shorter": Choice("bf16 and recomputation", 44,
        "First shorten what each example keeps: 16-bit numbers, recomputation. Then ask again.",
        ("mixed_bfloat16; keras.remat", "torch.autocast; torch.utils.checkpoint",
         "jnp.bfloat16; jax.checkpoint", "")),
    "spatial": Choice("Spatial parallel", 43,
        "Each example is divided: every device has a part of the image or sequence.",
        ("by hand", "by hand; context_parallel for attention", "NamedSharding of positions", "")),
    "parameter_server": Choice("Parameter server", 34,
        "Workers fetch weights and send gradients at their own pace, without waiting.",
        ("tf.distribute.ParameterServerStrategy", "", "", "")),
    "nothing": Choice("More memory, or LoRA", 44,
        "It must fit first: more or larger devices, a smaller model, or few trained weights.",
        ("", "PEFT (LoRA, QLoRA)", "", "")),
}  # fmt: skip


class Question(NamedTuple):
    """A question of the guide, and what follows after yes and no: a question or a choice."""

    text: str
    yes: str
    no: str


FASTEST = "fastest"
QUESTIONS = {
    "tied": Question("Is the data tied to several places?", "site", "enough"),
    "site": Question("Does a step fit at each place?", "federated", "nothing"),
    "enough": Question("Is one device enough?", "one_device", "fits"),
    "fits": Question("Does a step fit in some way on all devices?", "worth", "short"),
    "short": Question("Does it with 16-bit numbers and recomputation?", "shorter", "pieces"),
    "pieces": Question("Does it if each example is divided?", "spatial", "nothing"),
    "worth": Question("Are more devices worth it?", FASTEST, "stale"),
    "stale": Question("Are they without waiting for each other?", "parameter_server", "one_device"),
}
# What FASTEST chooses from.
COMPARED = ("trials", "mirrored", "multi_worker", "hsdp", "sharded", "embeddings", "pipeline",
            "tensor", "hybrid", "context", "experts", "central")  # fmt: skip


def frameworks() -> Table:
    """Returns a table of what each choice is called in each framework."""
    from labkit.views.table import Table

    rows = [(one.name, *(name or "none" for name in one.called)) for one in CHOICES.values()]
    note = f"{READ}; TensorFlow, PyTorch and Horovod as installed: 2.21, 2.13 and 0.28.1."
    return Table(("choice", *FRAMEWORKS), rows, "What a choice is called", note)
