"""The sampler's process: what ends it, and what does not."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil

COMMAND = [sys.executable, "-P", "-m", "labkit.telemetry.sampler"]
COMMAND += ["--pid", str(os.getpid()), "--every", "60", "--clock", "0"]


def test_signals_are_for_the_program_that_is_watched_and_a_word_ends_it():
    # A shell that runs the tests in the background has SIGINT ignored from the start.
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(COMMAND, preexec_fn=default, **pipes)  # noqa: PLW1509
    try:
        process.stdout.readline()
        for signum in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(signum)
        os.write(process.stdin.fileno(), b"nonsense\nflush 7\n")
        lines = [json.loads(process.stdout.readline())]
        while lines[-1] != {"flushed": 7}:
            lines.append(json.loads(process.stdout.readline()))
        assert [one[0] for one in lines if isinstance(one, list)]
        os.write(process.stdin.fileno(), b"end\n")
        process.wait(20)  # its standard input is still open
        assert "end" in json.loads(process.stdout.readlines()[-1])
        assert (process.returncode, process.stderr.read()) == (0, b"")
    finally:
        process.kill()
        process.communicate()


def test_it_ends_when_its_parent_dies_although_its_pipes_stay_open():
    """As when the kernel is killed while a fork of it holds their other ends."""
    program = f"import subprocess; subprocess.run({COMMAND!r})"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    parent = subprocess.Popen([sys.executable, "-c", program], **pipes)
    parent.stdout.readline()  # the sampler's: it has both pipes from its parent
    (sampler,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait(20)
    try:
        sampler.wait(300)
    finally:
        with suppress(psutil.NoSuchProcess):
            sampler.kill()
        parent.communicate()
