"""Under `labkit explain` a program runs as it does alone, and later runs change no file of it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

from labkit.explain.runs import can_protect

pytestmark = pytest.mark.skipif(not can_protect(), reason="needs Landlock, with truncation")

EXPLAIN = [sys.executable, "-m", "labkit.cli", "explain", "--for"]
# A program that trains without a framework: it says itself where a step ends.
TRAIN = """
import os, sys, time
marks = sys.modules.get("labkit_agent.marks")
def train(each=lambda number: None, steps=60):
    for number in range(steps):
        sorted(range(20_000), key=lambda one: -one)
        each(number)
        if marks:
            marks.step("optimizer")
"""


@dataclass
class Ran:
    code: int
    out: bytes
    err: bytes
    scratch: list[str]


def run(program, folder, *, explained, arguments=("train.py",), budget=0, **options):
    """Run `train.py` in a fresh folder, alone or explained; the code is as a shell tells it."""
    tmp = folder.parent / folder.name[:3]  # the path of a socket has at most 107 letters
    tmp.mkdir()
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAIN + textwrap.dedent(program), "utf-8")
    command = [sys.executable, *arguments]
    if explained:
        command = [
            sys.executable,
            "-m",
            "labkit.cli",
            "explain",
            "--for",
            str(budget),
            "--",
            *command,
        ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, timeout=120, **options,
        env={**os.environ, "TMPDIR": str(tmp)},
    )  # fmt: skip
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Ran(code, done.stdout, done.stderr, [one.name for one in tmp.iterdir()])


def assert_as_alone(program, tmp_path, **options):
    """The same exit code and output, labkit's own lines after it, and no file left."""
    alone, explained = tmp_path / "alone", tmp_path / "explained"
    first = run(program, alone, explained=False, **options)
    second = run(program, explained, explained=True, **options)
    assert second.code == first.code
    assert second.out.replace(bytes(explained), b"") == first.out.replace(bytes(alone), b"")
    assert second.err.replace(bytes(explained), b"").startswith(
        first.err.replace(bytes(alone), b"")
    )
    assert second.scratch == first.scratch
    assert contents(explained) == contents(alone)


def contents(folder):
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and one.suffix != ".pyc"
    }


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(7)",
        "sys.exit('text')",
        "raise ValueError('no')",
        "sys.stdout.flush(); os._exit(5)",
        "import signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); "
        "os.kill(os.getpid(), signal.SIGTERM)",
        "import threading; threading.Thread(target=lambda: sys.exit(4)).start()",
    ],
)
def test_it_ends_as_it_ends_alone(ending, tmp_path):
    assert_as_alone(f"print('trains')\ntrain()\n{ending}", tmp_path)


PROGRAMS = {
    "fork": """
        train()
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            train()
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """,
    "spawn and forkserver": """
        import multiprocessing
        if __name__ == "__main__":
            for kind in ("spawn", "forkserver"):
                with multiprocessing.get_context(kind).Pool(2) as pool:
                    print(pool.map(abs, range(-5, 0)))
    """,
    "another folder": """
        os.mkdir("below")
        os.chdir("below")
        train(lambda number: open("log", "a").write(f"{number}\\n"))
    """,
    "its own files deleted": "train()\nos.remove('train.py')",
    "all files closed": """
        train()
        os.closerange(3, 50)
        files = [open("train.py") for _ in range(3)]
        train()
        print(files[0].readline(), files[0].fileno())
    """,
    "a Python that is not watched": """
        import subprocess
        os.environ.pop("PYTHONPATH", None)
        for flags in ([], ["-I"], ["-S"]):
            code = "import sys; print(sys.path)"
            subprocess.run([sys.executable, *flags, "-c", code], check=True)
    """,
    "what it can see": """
        import threading
        print(sorted(os.listdir("/proc/self/fd")), threading.active_count(), sys.path, sys.argv)
        print(sorted({*os.environ} - {"LABKIT_EXPLAIN", "PYTHONPATH"}), open("train.py").fileno())
    """,
    "a module named like one of Python's": """
        for name in ("logging", "random", "pickle"):
            with open(f"{name}.py", "w") as file:
                file.write(f"mine = {name!r}")
        import logging, random, pickle
        print(logging.mine, random.mine, pickle.mine)
    """,
    "exceptions of watched calls": """
        import pickle
        pickle.dump(sys, open("x", "wb"))
    """,
    "100 MB": "for _ in range(1000):\n    sys.stdout.write('x' * 99_999 + '\\n')",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_what_it_does_alone(name, tmp_path):
    assert_as_alone(PROGRAMS[name], tmp_path)


def test_it_reads_its_input(tmp_path):
    assert_as_alone("train()\nprint(len(sys.stdin.read()))", tmp_path, input=b"line\n" * 100_000)


def test_a_sitecustomize_of_the_users_own_is_run(tmp_path):
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 1\n")
    program = "import sitecustomize\nprint(mine, sitecustomize.__file__)"
    launch = f"""import os, sys
os.environ["PYTHONPATH"] = {str(lib)!r} + ":" + os.environ.get("PYTHONPATH", "")
os.execv(sys.executable, [sys.executable, "train.py"])"""
    assert_as_alone(program, tmp_path, arguments=("-c", launch))


@pytest.mark.parametrize(
    ("program", "key", "code"),
    [
        (
            "try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
            "except KeyboardInterrupt:\n    sys.exit(3)",
            b"\x03",
            3,
        ),
        ("print('ready', flush=True)\ntime.sleep(60)", b"\x03", 128 + signal.SIGINT),
        ("print('ready', flush=True)\ntime.sleep(60)", signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_what_interrupts_it_is_its_own(program, key, code, tmp_path):
    """Ctrl-C of a terminal, which all its processes get, and a signal that only labkit gets."""
    (tmp_path / "train.py").write_text(f"{TRAIN}train()\n{program}")
    assert on_terminal(tmp_path, b"ready", key) == code
    assert [*(tmp_path / "tmp").iterdir()] == []


def on_terminal(folder, after, key, budget="0"):
    """The exit code of an explained train.py, to which a key or signal comes after some text."""
    (folder / "tmp").mkdir()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["TMPDIR"] = str(folder / "tmp")
        os.execv(sys.executable, [*EXPLAIN, budget, "--", sys.executable, "train.py"])
    shown = b""
    while after not in shown:
        shown += os.read(terminal, 65_536)
    if isinstance(key, bytes):
        os.write(terminal, key)
    else:
        os.kill(pid, key)
    try:
        while os.read(terminal, 65_536):
            pass
    except OSError:  # its other end is closed
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return status if status >= 0 else 128 - status


def test_a_signal_ends_the_later_runs_and_what_they_started(tmp_path):
    (tmp_path / "train.py").write_text(
        TRAIN + "import subprocess\nsubprocess.Popen(['sleep', '50'], start_new_session=True)\n"
        "train(lambda number: time.sleep(0.01))\n"
    )
    assert on_terminal(tmp_path, b"runs in a copy", signal.SIGTERM, "60") == 128 + signal.SIGTERM
    assert [*(tmp_path / "tmp").iterdir()] == []


# ---- the later runs ------------------------------------------------------------------------------

CHECKPOINTS = """
    import json
    start = json.load(open("last.json"))["step"] if os.path.exists("last.json") else 0
    print("from", start)
    def each(number):
        if number % 3 == 0:
            with open("log.txt", "a") as file:
                file.write("x" * 400_000)
            with open("new.json", "w") as file:
                json.dump({"step": start + number, "weights": [0] * 20_000}, file)
            os.replace("new.json", "last.json")
    train(each)
"""


def test_checkpoints_and_logs_are_those_of_the_watched_run(tmp_path):
    """Each later run would begin where the watched one did, and writes into its copy."""
    assert_as_alone(CHECKPOINTS, tmp_path, budget=3)


def test_nothing_is_written_outside_and_the_answer_says_so(tmp_path):
    program = f"""
        def each(number):
            with open({str(tmp_path / "log.txt")!r}, "a") as file:
                file.write("x" * 400_000)
        train(each)
    """
    done = run(program, tmp_path / "explained", explained=True, budget=3)
    assert (tmp_path / "log.txt").stat().st_size == 60 * 400_000
    assert b"PermissionError" in done.err


def test_a_script_beside_its_folder_is_not_edited(tmp_path):
    """A link in the copy, or a path with `..`: what it leads to stays as it is."""
    work = tmp_path / "work"
    work.mkdir()
    run("train(lambda number: time.sleep(0.02))", tmp_path / "code", explained=False)
    before = contents(tmp_path / "code")
    (work / "train.py").symlink_to("../code/train.py")
    for script in ("../code/train.py", "train.py"):
        subprocess.run(
            [*EXPLAIN, "3", "--", sys.executable, script], cwd=work, timeout=120, check=True
        )
        assert contents(tmp_path / "code") == before


def test_links_and_large_files_can_be_read_in_the_copy(tmp_path):
    """A link out of the folder, one to a folder within, one to nowhere, and a gigabyte."""
    folder, data = tmp_path / "explained", tmp_path / "data"
    (folder / "below").mkdir(parents=True)
    data.mkdir()
    (data / "one").write_text("1")
    (folder / "below" / "two").write_text("2")
    (folder / "data").symlink_to(data)
    (folder / "within").symlink_to("below")
    (folder / "nowhere").symlink_to("nowhere")
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 30)
    program = """
        def each(number):
            text = open("data/one").read() + open("within/two").read() + open("../data/one").read()
            assert text == "121" and open("large", "rb").read(1) == b"\\0"
            time.sleep(0.02)
        train(each)
    """
    done = run(program, folder, explained=True, budget=3)
    assert done.code == 0
    assert b"Error" not in done.err
    assert b"left out" in done.err
