"""The training of the course: a model and a step that every strategy runs."""

from labkit.training.diagnosis import diagnose
from labkit.training.history import History
from labkit.training.job import Job
from labkit.training.optimizers import scaled_learning_rate
from labkit.training.step import training_step
from labkit.training.step_account import account

# A module and a function share a name here: imported now, the function is what is found later.
from labkit.training.step_breakdown import breakdown

# What ranks of `labkit.cluster` load before they start, where a program names this room.
PRELOAD = ("tensorflow", "keras")
