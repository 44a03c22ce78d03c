"""What is here: GPUs, cores and memory, and the replicas that a lesson trains on.

>>> import labkit
>>> labkit.hardware()                  # doctest: +SKIP
>>> two = labkit.replicas(2)           # doctest: +SKIP
>>> strategy = two.strategy()          # doctest: +SKIP
"""

from labkit.callable_room import make_callable
from labkit.hardware.replica_set import Replicas, replicas
from labkit.hardware.survey import Hardware, machine_text, survey

make_callable(__name__, survey)
