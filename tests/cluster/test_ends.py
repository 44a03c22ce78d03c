"""Our ends of a rank's pipes: what comes out of them, and in which order."""

import os
import socket

from labkit.cluster.ends import Ends
from labkit.cluster.engine import Output, Raised
from labkit.cluster.forked import DONE
from labkit.cluster.messages import frame


def test_what_a_rank_wrote_before_it_was_done_is_told_before_that():
    """Whoever waits may learn of the message alone, and takes a run for over that has told all."""
    ends, (out, err, messages, stacks) = Ends.made(0)
    with socket.socket(fileno=messages) as post:
        os.write(err, b"gives")
        os.write(out, b"up")
        post.sendall(frame(DONE["raised"] + b"why"))
        told = ends.read(ends.post.fileno())
    assert {*told[:-1]} == {Output(0, "out", b"up"), Output(0, "err", b"gives")}
    assert told[-1] == Raised(0, b"why")
    for file in (out, err, stacks):
        os.close(file)
    for file in list(ends.files):
        ends.close(file)
