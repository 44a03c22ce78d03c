"""Start a Horovod program under srun where Horovod was built without MPI.

    srun python 60_under_slurm.py train.py --epochs 3

A Horovod that was built with Gloo alone does not read Slurm's variables: each task is rank 0 of 1.
This sets the variables that horovodrun sets, and needs neither ssh nor MPI. Task 0 also runs the
server at which the ranks find one another.
"""

import os
import runpy
import socket
import subprocess
import sys
import threading

if "SLURM_STEP_ID" not in os.environ or len(sys.argv) < 2:
    sys.exit(__doc__)

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

# Of this step: a job can have more tasks and nodes, and need not say how many.
rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
local, node = int(os.environ["SLURM_LOCALID"]), int(os.environ["SLURM_NODEID"])
nodes = int(os.environ["SLURM_STEP_NUM_NODES"])
each = ranks // nodes  # as many tasks on every node, in blocks
names = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
hosts = subprocess.run(names, capture_output=True, text=True, check=True).stdout.split()
address = socket.gethostbyname(hosts[0])
port = 20_000 + int(os.environ["SLURM_JOB_ID"]) % 10_000
os.environ |= {
    "HOROVOD_RANK": str(rank),
    "HOROVOD_SIZE": str(ranks),
    "HOROVOD_LOCAL_RANK": str(local),
    "HOROVOD_LOCAL_SIZE": str(each),
    "HOROVOD_CROSS_RANK": str(node),
    "HOROVOD_CROSS_SIZE": str(nodes),
    "HOROVOD_HOSTNAME": hosts[node],
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
    "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
}
if rank == 0:
    server = RendezvousHTTPServer((address, port), RendezvousHandler, False)
    server.init(get_host_assignments(parse_hosts(",".join(f"{h}:{each}" for h in hosts)), ranks))
    threading.Thread(target=server.serve_forever, daemon=True).start()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
