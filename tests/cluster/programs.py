"""What ranks of several tests run. Ranks import this module, so it imports little itself."""

import json
import os
import threading
import time

import numpy as np

from labkit.cluster import this_rank
from labkit.collectives.communicator import Request, Status
from labkit.collectives.programs import ring_all_reduce

FACTOR = 10


def times_factor(rank, added=0):
    return rank * FACTOR + added


def waits(_rank):
    threading.Event().wait()


def says_its_pid_and_waits(_rank):
    print("pid", os.getpid(), flush=True)
    threading.Event().wait()


def who(rank):
    """The address, the TF_CONFIG and the variables of a rank under Slurm."""
    me = this_rank()
    print(f"{me.role} {me.index} on {os.environ['SLURMD_NODENAME']}", flush=True)
    names = ("SLURM_PROCID", "LOCAL_RANK", "OMP_NUM_THREADS", "MASTER_ADDR")
    return me.addresses[rank], json.loads(me.text()), *(os.environ.get(n) for n in names)


class LateOnRank1:
    """An argument that rank 1 unpacks later than the others; each leaves a file when it has."""

    def __init__(self, folder):
        self.folder = folder

    def __setstate__(self, state):
        time.sleep(0.3 if os.environ["RANK"] == "1" else 0)
        (state["folder"] / os.environ["RANK"]).touch()


class NotHere:
    """An argument that ranks cannot unpack; or that some never finish to unpack."""

    def __init__(self, waits=()):
        self.waits = waits

    def __setstate__(self, state):
        if int(os.environ["RANK"]) in state["waits"]:
            threading.Event().wait()
        if not state["waits"]:
            raise RuntimeError("not here")


def sums(comm, buffer):
    """What a ring all-reduce leaves."""
    ring_all_reduce(comm, buffer)
    return buffer.tolist()


def exchange(comm, messages):
    """Send and receive all messages (source, dest, tag, count) at once; what came from where."""
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    comm = comm.Split(0, key=-rank)  # the ranks turned round
    found, requests = [], []
    for source, dest, tag, count in messages:
        if dest == rank:
            found.append((np.full(count + 2, -1.0), Status()))
            requests.append(comm.Irecv(found[-1][0], last - source, tag))
    for number, (source, dest, tag, count) in enumerate(messages):
        if source == rank:
            requests.append(comm.Isend(np.full(count, float(number)), last - dest, tag))
    Request.Waitall(requests, [status for _, status in found])
    return [(into.tolist(), one.source, one.tag, one.count) for into, one in found]
