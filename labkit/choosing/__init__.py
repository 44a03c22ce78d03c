"""Choosing a kind of training for a model, its data and a machine; what scale costs."""

from labkit.choosing.choices import frameworks
from labkit.choosing.decision import Decision, choose, divide
from labkit.choosing.facts import Data, Machine, Model
