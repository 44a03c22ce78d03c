"""Weights on two servers, over links: who carries half is right, each fault is named."""

import numpy as np
import pytest

from labkit.exercises import tasks
from tests.exercises.cells import refused


def on_one_server(comm, weights, gradient, steps):
    rank, workers = comm.Get_rank(), range(2, comm.Get_size())
    for _ in range(steps):
        if rank == 0:
            for worker in workers:
                comm.Send(weights, dest=worker)
            parts = [np.empty_like(weights) for _ in workers]
            for worker, part in zip(workers, parts, strict=True):
                comm.Recv(part, source=worker)
            weights -= 0.1 * sum(parts)
        elif rank > 1:
            comm.Recv(weights, source=0)
            comm.Send(gradient(weights), dest=0)
    return np.array_split(weights, 2)[rank % 2]


def at_once(comm, weights, gradient, steps):
    """Another right program: no message waits for another one."""
    rank, workers = comm.Get_rank(), range(2, comm.Get_size())
    halves = np.array_split(weights, 2)
    for _ in range(steps):
        if rank < 2:
            sent = [comm.Isend(halves[rank].copy(), worker) for worker in workers]
            parts = np.empty((len(workers), halves[rank].size), np.float32)
            requests = [comm.Irecv(part, source) for part, source in zip(parts, workers)]  # noqa: B905
            for request in sent + requests:
                request.Wait()
            halves[rank] -= np.float32(0.1) * parts.sum(axis=0)
        else:
            for request in [comm.Irecv(half, server) for server, half in enumerate(halves)]:
                request.Wait()
            whole = gradient(np.concatenate(halves))
            for request in [
                comm.Isend(whole[: halves[0].size], 0), comm.Isend(whole[halves[0].size :], 1)
            ]:  # fmt: skip
                request.Wait()
    return halves[rank] if rank < 2 else None


def by_collectives(comm, weights, gradient, steps):
    """Trees of MPI's collectives: workers pass on weights, and add up gradients on the way."""
    from mpi4py import MPI

    rank = comm.Get_rank()
    halves = np.array_split(weights, 2)
    groups = [comm.Split(int(rank == 1 - server), rank) for server in (0, 1)]
    for _ in range(steps):
        for server in (0, 1) if rank > 1 else (rank,):
            groups[server].Bcast(halves[server], root=0)
        parts = np.array_split(np.zeros_like(weights) if rank < 2 else gradient(weights), 2)
        for server in (0, 1) if rank > 1 else (rank,):
            total = np.empty_like(halves[server]) if rank < 2 else None
            groups[server].Reduce(parts[server], total, op=MPI.SUM, root=0)
            halves[server] -= 0 if total is None else 0.1 * total
    return halves[rank] if rank < 2 else None


def without_servers(comm, weights, gradient, steps):
    """The servers' weights are used once, and the workers train alone."""
    rank, workers = comm.Get_rank(), range(2, comm.Get_size())
    halves, group = np.array_split(weights, 2), comm.Split(int(rank > 1), rank)
    if rank < 2:
        for worker in workers:
            comm.Send(halves[rank], dest=worker)
            comm.Recv(halves[rank], source=worker)
        return halves[rank]
    for server in (0, 1):
        comm.Recv(halves[server], source=server)
        comm.Send(halves[server], dest=server)
    total = np.empty_like(weights)
    for _ in range(steps):
        group.Allreduce(gradient(weights), total)
        weights -= 0.1 * total
    return None


@pytest.mark.parametrize("program", [at_once, by_collectives])
def test_another_right_program_is_accepted(program):
    outcome = tasks()["34.two_servers"].check(program)
    if outcome.state == "elsewhere":
        pytest.skip(str(outcome))
    assert outcome, outcome


def test_one_server_for_all_is_told_by_the_idle_link_of_the_other():
    refused("34.two_servers", on_one_server, "The link of host 1 is idle")


def test_workers_that_train_without_the_servers_are_told_so():
    refused("34.two_servers", without_servers, "gradients of the pulled weights")
