"""Kernels of notebooks under test, each a fork of one process that has imported TensorFlow.

Starting IPython and importing TensorFlow, Keras and matplotlib takes three seconds of CPU for each
notebook; here it takes them once for each process of pytest. Linux; elsewhere kernels start cold.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from labkit.cluster.fork_client import READ_AT_IMPORT
from labkit.cluster.fork_server import ADOPT_ORPHANS

IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib.pyplot", "keras", "tensorflow",
    "labkit.exercises", "labkit.training", "labkit.strategies",
)  # fmt: skip
FORK_SERVER = ["-P", "-m", "labkit.cluster.fork_server"]
STARTED_COLD = subprocess.Popen._execute_child  # type: ignore[attr-defined]
LATER = {"TF_CONFIG", "TF_GRPC_REUSE_PORT"}
INLINE = "module://matplotlib_inline.backend_inline"


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """What TensorFlow, Keras and NumPy heed only when they are imported."""
    heeded = tuple({*READ_AT_IMPORT} - {"PYTHON"})
    return {k: v for k, v in environment.items() if k.startswith(heeded) and k not in LATER}


AT_IMPORT = _read_at_import(os.environ)


def launch(command: list[str], *, cwd: str, env: dict[str, str], **options: Any) -> Any:
    """In the place of jupyter_client's own: a warm kernel, where the command starts IPython's."""
    from jupyter_client.launcher import launch_kernel

    if sys.platform != "linux" or command[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
        return launch_kernel(command, cwd=cwd, env=env, **options)
    return Kernel(command[2:], cwd, env)


class Kernel:
    """A forked kernel, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
        self.returncode: int | None = None
        self.pid = _ask({"arguments": arguments, "cwd": str(cwd), "env": env})
        self._ended = os.pidfd_open(self.pid)

    def poll(self, seconds: float | None = 0) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = _ask({"reap": self.pid})
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(None)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that forks; it ends when this one does, since its input then ends."""
    return subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ, "MPLBACKEND": INLINE},
    )  # fmt: skip


def _ask(request: dict[str, Any]) -> int:
    asked, answers = _server().stdin, _server().stdout
    assert asked is not None
    assert answers is not None
    print(json.dumps(request), file=asked, flush=True)
    return int(answers.readline())


def _serve() -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends with it; read at import
    gc.disable()  # it would take a fifth of the seconds of the imports
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy every page of these objects
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1]), flush=True)
        elif os.fork() == 0:
            _be_kernel(**request)
    os._exit(0)  # to free all that was imported would take a second


def _be_kernel(arguments: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """Be like a Python that `python -m ipykernel_launcher` has just started."""
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    print(os.getpid(), flush=True)  # not before: who asked takes it for a group
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    _be_fresh(arguments, cwd, {**env, "JPY_PARENT_PID": str(os.getppid())})
    IPKernelApp.launch_instance()
    sys.exit()


def _be_fresh(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be like a Python that has just started; what it starts is warm, too."""
    import numpy as np

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    np.random.seed()  # noqa: NPY002 (all are copies of one process)
    sys.argv[:] = arguments
    _keep_a_spare()
    gc.enable()


# A process that a warm one starts with this Python is a fork as well: of its spare, a child that
# does nothing else. The fork's own parent ends at once, so that it is a child of who started it.


def _keep_a_spare() -> None:
    ours, its = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        parent = os.getppid()
        while True:
            asked, files, *_ = socket.recv_fds(its, 2**20, 16)
            if not asked:
                os._exit(0)
            if os.fork() == 0:
                if os.fork() == 0:
                    while os.getppid() != parent:
                        time.sleep(0.001)
                    its.send(str(os.getpid()).encode())
                    _be_program(files, **json.loads(asked))
                os._exit(0)
            os.wait()
            for file in files:
                os.close(file)
    its.close()
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)
    subprocess.Popen._execute_child = functools.partialmethod(_execute_child, ours)  # type: ignore[attr-defined]


def _execute_child(
    self: Any,
    spare: socket.socket,
    args: Any,
    *given: Any,  # of Popen, by position
) -> None:
    """In the place of Popen's own: where it would start this Python, the spare forks."""
    words = [*map(str, args)] if isinstance(args, list) else []
    starts = len(words) > 1 and (words[1].endswith(".py") or words[1:4] == FORK_SERVER)
    pass_fds, cwd, env, pipes, session = given[3], given[4], given[5], given[9:15], given[20]
    env = dict(os.environ if env is None else env)
    if not starts or words[0] != sys.executable or _read_at_import(env) != AT_IMPORT:
        return STARTED_COLD(self, args, *given)
    files = [at if pipes[end] == -1 else pipes[end] for at, end in enumerate((0, 3, 5))]
    asked = {
        "numbers": [0, 1, 2, *pass_fds], "words": words[1:], "session": session,
        "cwd": str(cwd or Path.cwd()), "env": env,
    }  # fmt: skip
    socket.send_fds(spare, [json.dumps(asked).encode()], [*files, *pass_fds])
    self.pid, self._child_created = int(spare.recv(100)), True
    return self._close_pipe_fds(*pipes)


def _be_program(
    files: list[int], *, numbers: list[int], words: list[str], session: bool, **fresh: Any
) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    files = [fcntl.fcntl(file, fcntl.F_DUPFD, 256) for file in files]
    os.closerange(3, 256)
    for file, number in zip(files, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", buffering=number == 2 or -1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if session:
        os.setsid()
    if words[0] == "-P":
        _be_fresh(words[2:], **fresh)
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        _be_fresh(words, **fresh)
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    _serve()
