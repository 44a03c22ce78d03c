"""Programs of lecture 20 as students write them: right ones in other styles, wrong ones by name."""

import importlib
import sys

import numpy as np
import pytest

from labkit.collectives import run
from labkit.exercises import tasks
from tests.exercises.cells import refused, value

pytest.importorskip("mpi4py.MPI")
NAMES = {
    "20.tree_broadcast": "my_broadcast",
    "20.my_gather": "my_gather",
    "20.first_come": "first_come",
}
TREE = """
have = 1
while have < ranks:
    {if_sends}
    {if_receives}
    have *= 2
"""
STAR = """
chunks = np.array_split(buffer, ranks)
if rank:
    {}
else:
    for other in range(1, ranks):
        {}
"""
SENDS = "comm.Send(chunks[rank], dest=0)"
TAGGED = SENDS.replace("0)", "0, tag=7)")
STATUS = "from mpi4py import MPI\nstatus = MPI.Status()\n"
WHERE = "chunks[status.Get_source()]"


def written(task, body, top=""):
    head = f"{top}\ndef {NAMES[task]}(comm, buffer):\n"
    lines = ["rank, ranks = comm.Get_rank(), comm.Get_size()", *body.strip().splitlines()]
    return value(head + "".join(f"    {line}\n" for line in lines))


def tree(send, receive):
    return TREE.format(
        if_sends=f"if rank < have and rank + have < ranks: {send}",
        if_receives=f"elif have <= rank < 2 * have: {receive}",
    )


@pytest.mark.parametrize(
    ("task", "body"),
    [
        ("20.tree_broadcast", tree("comm.send(buffer, dest=rank + have)",
                                   "buffer[:] = comm.recv(source=rank - have)")),
        ("20.tree_broadcast", tree("comm.Ssend([buffer, buffer.size], rank + have, have)",
                                   "comm.Irecv(buffer, rank - have, have).Wait()")),
        ("20.my_gather", STAR.format("comm.send(chunks[rank], dest=0)",
                                     "chunks[other][:] = comm.recv(source=other)")),
        ("20.my_gather", STATUS + STAR.format(
            SENDS, f"comm.Probe(status=status); comm.Recv({WHERE}, status.Get_source())")),
        ("20.my_gather", STAR.format("comm.Isend(chunks[rank], 0, rank).wait()",
                                     "comm.Recv(chunks[other], tag=other)")),
        ("20.first_come", STAR.format("comm.send((rank, chunks[rank]), dest=0, tag=7)",
                                      "who, part = comm.recv(tag=7); chunks[who][:] = part")),
        ("20.first_come", STATUS + STAR.format(TAGGED,
            f"part = chunks[0].copy(); comm.Recv(part, tag=7, status=status); {WHERE}[:] = part")),
        ("20.first_come", STATUS + STAR.format(TAGGED,
            f"comm.Probe(tag=7, status=status); comm.Recv({WHERE}, status.source, 7)")),
    ],
)  # fmt: skip
def test_a_program_is_right_in_any_style(task, body):
    assert tasks()[task].check(written(task, body)).state == "right"


@pytest.mark.parametrize(
    ("task", "body", "told"),
    [
        ("20.tree_broadcast", "comm.Bcast(buffer)", "library's comm.Bcast made it"),
        ("20.tree_broadcast", "from mpi4py import MPI\nMPI.COMM_WORLD.Bcast(buffer)", "the comm"),
        ("20.tree_broadcast", tree("comm.Send(buffer, rank + have)", "comm.recv()"), "Recv goes"),
        ("20.tree_broadcast", tree("comm.Send(buffer, rank + have)",
            "comm.Recv(buffer, rank - have)").replace("have < ranks:", "have < min(ranks, 16):", 1),
            "on 17 ranks"),
        ("20.my_gather", STAR.format("comm.send(chunks[rank], 0)", "chunks[other][:] = comm.recv()"
            ), "name the source"),
        ("20.my_gather", STAR.format("comm.Send(buffer, dest=0)",
            "part = buffer.copy(); comm.Recv(part, other); "
            "chunks[other][:] = np.array_split(part, ranks)[other]"), "not the whole array"),
        ("20.first_come", STAR.format(TAGGED, "comm.Recv(chunks[other], source=other)"),
            "source=MPI.ANY_SOURCE"),
        ("20.first_come", STAR.format(TAGGED, "comm.Recv(chunks[other])"), "status.Get_source()"),
        ("20.first_come", STATUS + STAR.format(TAGGED,
            "comm.Probe(status=status); comm.Recv(chunks[other], other)"), "ANY_SOURCE"),
        ("20.first_come", STAR.format(SENDS, "comm.Recv(chunks[other])"), "carry tag 0"),
        ("20.first_come", STATUS + STAR.format(TAGGED,
            f"part = chunks[0].copy(); comm.Recv(part, tag=7); {WHERE}[:] = part"),
            "status is empty"),
        ("20.first_come", STATUS + STAR.format(TAGGED,
            f"part = chunks[0].copy(); comm.Recv(part, status=status); {WHERE}[:] = part"),
            "tag=7), and put each"),
    ],
)  # fmt: skip
def test_a_wrong_program_is_told_what_is_wrong(task, body, told):
    refused(task, written(task, body), told)


MODULE = """
from mpi4py.MPI import ANY_SOURCE as FROM_ANY, Request, Status as Envelope
def exchange(comm, buffer):
    status, into, other = Envelope(), buffer.copy(), 1 - comm.Get_rank()
    requests = [comm.Irecv(into, other), comm.Isend(buffer, other)]
    Request.Waitall(requests, [status, Envelope()])
    buffer[:] = into
    return status.Get_source()
"""


def test_a_program_may_call_a_module_that_names_mpi4py(tmp_path, monkeypatch):
    (tmp_path / "students_module.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("students_module")

    def program(comm, buffer):
        assert module.exchange(comm, buffer) == 1 - comm.Get_rank()

    for one in (module.exchange, program):
        assert run(one, np.eye(2)).outputs[0].tolist() == [0, 1]
    del sys.modules["students_module"]
