"""What a training step keeps in memory, and on which device it fits."""

from labkit.memory.shape import activations_per_layer
from labkit.memory.step_memory import CONVENTIONS, Footprint, bars, footprint
from labkit.memory.transformer_memory import fits, fullest, mfu, stages, time_to_train, transformer
