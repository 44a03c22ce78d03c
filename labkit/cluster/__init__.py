"""N ranks as processes, and a program that runs on all of them: on this machine, or under Slurm.

>>> import labkit
>>> with labkit.cluster(ranks=4) as c:         # doctest: +SKIP
...     c.run(program)
"""

from labkit.callable_room import make_callable
from labkit.cluster.cluster import Cluster, check_environment
from labkit.cluster.here.fork_client import shutdown
from labkit.cluster.links.network import Network
from labkit.cluster.links.traffic import Traffic, replay
from labkit.cluster.ranks import tf_config
from labkit.cluster.ranks.failures import RankError
from labkit.cluster.ranks.handle import RunHandle, RunOutcome
from labkit.cluster.ranks.in_rank import Script, communicator
from labkit.cluster.ranks.output import OutputLine
from labkit.cluster.ranks.tf_config import this_rank
from labkit.cluster.session import SlurmSession, slurm_session
from labkit.cluster.slurm.batch import batch_script

make_callable(__name__, Cluster)
