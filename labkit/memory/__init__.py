"""What a training step keeps in memory, on which device it fits, and which parallelism follows."""

from labkit.memory.footprint import CONVENTIONS, Footprint, bars, footprint
from labkit.memory.recommend import Data, Decision, Machine, Model, choose, divide, frameworks
from labkit.memory.shape import activations_per_layer
from labkit.memory.transformer import fits, fullest, mfu, stages, time_to_train, transformer

__all__ = [
    "CONVENTIONS",
    "Data",
    "Decision",
    "Footprint",
    "Machine",
    "Model",
    "activations_per_layer",
    "bars",
    "choose",
    "divide",
    "fits",
    "footprint",
    "frameworks",
    "fullest",
    "mfu",
    "stages",
    "time_to_train",
    "transformer",
]
