"""What only a process of its own can show: a real Ctrl-C, and what an import drags along."""

import signal
import subprocess
import sys

PROGRAM = """
import labkit.timing

calls = 0

def work():
    global calls
    calls += 1
    if calls == 40:
        print("timing", flush=True)
    sum(range(2000))

result = labkit.timing.compare({"a": work, "b": work}, rounds=100_000_000, items=1)
print("rounds", result.rounds, result.log.stopped, flush=True)
print(result)
"""


def test_ctrl_c_in_the_middle_gives_the_result_so_far():
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "timing\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0, err
    word, rounds, stopped = out.splitlines()[0].split()
    assert (word, stopped) == ("rounds", "interrupted")
    assert int(rounds) >= 1
    assert f"Interrupted after {rounds} of 100000000 rounds" in out
    assert "complete rounds are kept" in err


def test_importing_it_loads_nothing_heavy():
    program = (
        "import sys, labkit.timing;"
        "print([m for m in ('numpy', 'matplotlib', 'tensorflow', 'IPython') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
