"""N ranks as processes, and a program that runs on all of them: on this machine, or under Slurm.

>>> import labkit
>>> with labkit.cluster(ranks=4) as c:         # doctest: +SKIP
...     c.run(program)
"""

from labkit.callable_room import make_callable
from labkit.cluster.cluster import Cluster, check_environment
from labkit.cluster.failures import RankError
from labkit.cluster.fork_client import shutdown
from labkit.cluster.in_rank import Script, communicator
from labkit.cluster.links import Network, Traffic, replay
from labkit.cluster.output import OutputLine
from labkit.cluster.run import Outcome, RunHandle
from labkit.cluster.slurm.batch import batch_script
from labkit.cluster.slurm.session import SlurmSession, slurm_session
from labkit.cluster.tf_config import this_rank

make_callable(__name__, Cluster)
