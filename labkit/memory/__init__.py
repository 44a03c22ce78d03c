"""What a training step keeps in memory, and which kind of parallelism follows from it."""

from labkit.memory.footprint import CONVENTIONS, Footprint, bars, footprint
from labkit.memory.recommend import Data, Decision, Machine, Model, choose

__all__ = [
    "CONVENTIONS",
    "Data",
    "Decision",
    "Footprint",
    "Machine",
    "Model",
    "bars",
    "choose",
    "footprint",
]
