"""What a training step keeps in memory, and which kind of parallelism follows from it."""

from labkit.memory.decision import Decision, choose
from labkit.memory.facts import Data, Machine, Model
from labkit.memory.footprint import CONVENTIONS, Footprint, footprint
from labkit.memory.pictures import bars, decision_tree

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
