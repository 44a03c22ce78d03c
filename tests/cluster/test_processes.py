"""What a launcher has started: signalled by run and rank, told of once, all of it ended."""

import subprocess
import sys

# In a process of its own: Processes waits for every child there is.
BEGIN = """
import os, signal, subprocess, time
from labkit.cluster.processes import Processes
from labkit.cluster.spares import Spares

told = []
processes = Processes(Spares(), lambda *words: told.append(words))

def sleeper(**keywords):
    made = subprocess.Popen(["sleep", "1000"], **keywords)
    made.returncode = 0  # Processes waits for it
    return made.pid

def told_of(count):
    until = time.monotonic() + 20
    while len(told) < count and time.monotonic() < until:
        processes.reap()
        time.sleep(0.01)
    return told
"""


def said_by(program):
    answer = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_a_rank_of_another_run_is_another_rank():
    program = """
for run in (1, 2):
    processes.add_rank(sleeper(start_new_session=True), run, 0)
processes.signal_rank(2, 0, signal.SIGTERM)
print(told_of(1), processes.has_ranks)
processes.end_all()
print(told, processes.has_ranks)
"""
    first, second = said_by(program).splitlines()
    assert first == "[('ended', 2, 0, -15)] True"
    assert second == "[('ended', 2, 0, -15), ('ended', 1, 0, -9)] False"


def test_a_signal_reaches_a_rank_that_does_not_lead_its_group_yet():
    program = """
processes.add_rank(sleeper(), 1, 0)  # as after a fork, before it has a session
processes.signal_rank(1, 0, signal.SIGKILL)
print(told_of(1))
processes.end_all()
"""
    assert said_by(program) == "[('ended', 1, 0, -9)]"


def test_a_stopped_rank_cannot_say_where_it_is():
    program = """
pid = sleeper(start_new_session=True)
processes.add_rank(pid, 1, 3)
processes.signal_rank(1, 3, signal.SIGSTOP)
os.waitpid(pid, os.WUNTRACED)
print(processes.ask_where(1, 3), processes.end_all(), told)
"""
    assert said_by(program) == "False True [('ended', 1, 3, -9)]"


def test_a_command_ends_with_its_group():
    program = """
made = subprocess.Popen(
    ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"],
    stdout=subprocess.PIPE, start_new_session=True,
)
other = int(made.stdout.readline())
made.returncode = 0
processes.add_command(made.pid, 7)
processes.signal_command(7, signal.SIGTERM)
print(told_of(1), end=" ")
processes.end_all()
print(os.path.exists(f"/proc/{other}") and open(f"/proc/{other}/stat").read().split()[2] != "Z")
"""
    assert said_by(program) == "[('gone', 7, -15)] False"
