"""Every strategy of the lectures, run in processes of its own with the course's training step.

>>> import labkit
>>> labkit.strategies()                                         # doctest: +SKIP
>>> labkit.strategies.drill("kill")                             # doctest: +SKIP
"""

from labkit.callable_room import make_callable
from labkit.strategies import parameter_server

# A module and a function share a name here: imported now, the function is what is found later.
from labkit.strategies.drills import DrillRecord, drill
from labkit.strategies.sharding import Sharding, sharding
from labkit.strategies.support_table import SupportTable, support_table
from labkit.strategies.workers import Workers, workers

# What ranks of `labkit.cluster` load before they start, where a program names this room.
PRELOAD = ("tensorflow", "keras")

make_callable(__name__, support_table)
