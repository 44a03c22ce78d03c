"""Choosing: from a model, its data and a machine to a kind of training, and what scale costs."""

from labkit.choosing.choices import frameworks
from labkit.choosing.decision import Decision, choose, divide
from labkit.choosing.facts import Data, Machine, Model
