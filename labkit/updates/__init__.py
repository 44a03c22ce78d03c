"""Synchronous and asynchronous training, simulated exactly and run in real processes.

>>> import labkit
>>> model = labkit.updates.simulate(workers=4, mode="async", slow={3: 4.0})
>>> model.mean_staleness
2.88
>>> labkit.updates.train(workers=3, mode="async", slow={2: 4.0})        # doctest: +SKIP

Both give an `Updates`: every gradient with the version of the weights that it was computed from.
"""

from labkit.updates.comparison import Comparison
from labkit.updates.problems import Problem, Quadratic, Softmax
from labkit.updates.record import Gradient, Updates
from labkit.updates.server import staleness_bound
from labkit.updates.simulator import simulate
from labkit.updates.stability import delayed, stability_limit
from labkit.updates.stage import parameter_server
from labkit.updates.train import train
