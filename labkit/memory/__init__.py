"""What a training step keeps in memory, and which kind of parallelism follows from it."""

from labkit.memory.footprint import CONVENTIONS, Footprint, footprint
from labkit.memory.pictures import bars, decision_tree
from labkit.memory.questions import Data, Machine, Model
from labkit.memory.recommend import Decision, choose

__all__ = [
    "CONVENTIONS",
    "Data",
    "Decision",
    "Footprint",
    "Machine",
    "Model",
    "bars",
    "choose",
    "decision_tree",
    "footprint",
]
