"""Kernels of notebooks under test, each a fork of one process that has imported TensorFlow.

Starting IPython and importing TensorFlow, Keras and matplotlib takes four seconds of CPU for each
notebook; here it takes them once for each process of pytest. What a kernel starts with its own
Python is a fork, too. Linux; elsewhere kernels start cold.
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
    return Kernel(command[1:], cwd, env)


class Kernel:
    """A forked kernel, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, words: list[str], cwd: str, env: dict[str, str]) -> None:
        self.returncode: int | None = None
        files = 3 * [nowhere := os.open(os.devnull, os.O_RDWR)]
        self.pid = _ask(_server()[0], files, words=words, session=True, cwd=str(cwd), env=env)
        os.close(nowhere)
        self._ended = os.pidfd_open(self.pid)

    def poll(self, seconds: float | None = 0) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = _ask(_server()[0], [], reap=self.pid)
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
def _server() -> tuple[socket.socket, object]:
    """The process that forks kernels, and our end of its socket: it ends when this closes."""
    ours, its = socket.socketpair()
    with its:
        return ours, subprocess.Popen(
            [sys.executable, "-P", __file__, str(its.fileno())], pass_fds=[its.fileno()],
            start_new_session=True, env={**os.environ, "MPLBACKEND": INLINE},
        )  # fmt: skip


def _ask(server: socket.socket, files: list[int], **request: Any) -> int:
    socket.send_fds(server, [json.dumps(request).encode()], files)
    return int(server.recv(100))


def _main(number: int) -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends with it; read at import
    gc.disable()  # it would take a fifth of the seconds of the imports
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy every page of these objects
    _serve(socket.socket(fileno=number), os.getpid())


def _serve(its: socket.socket, parent: int) -> NoReturn:
    """Fork what is asked for. Where `parent` is another process, it becomes the parent."""
    while True:
        asked, files, *_ = socket.recv_fds(its, 2**20, 16)
        if not asked:
            os._exit(0)  # to free all that was imported would take a second
        request = json.loads(asked)
        if "reap" in request:
            code = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            its.send(str(code).encode())
        elif os.fork() == 0:
            if os.getppid() != parent and os.fork():
                os._exit(0)  # it adopts orphans
            while os.getppid() != parent:
                time.sleep(0.001)
            if request.pop("session"):
                os.setsid()
            its.send(str(os.getpid()).encode())  # not before: who asked takes it for a group
            _be_program(files, **request)
        elif parent != os.getpid():
            os.wait()
        for file in files:
            os.close(file)


def _be_program(
    files: list[int], words: list[str], cwd: str, env: dict[str, str], numbers: Any = ()
) -> NoReturn:
    """Be like a Python that has just started, with these words on its command line."""
    import numpy as np

    signal.signal(signal.SIGINT, signal.default_int_handler)
    files = [fcntl.fcntl(file, fcntl.F_DUPFD, 256) for file in files]
    os.closerange(3, 256)
    for file, number in zip(files, (0, 1, 2, *numbers), strict=True):
        os.dup2(file, number)
        os.close(file)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", buffering=number == 2 or -1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update({**env, "JPY_PARENT_PID": str(os.getppid())})
    time.tzset()
    np.random.seed()  # noqa: NPY002 (all are copies of one process)
    _keep_a_spare()
    gc.enable()
    words = words[1:] if words[0] == "-P" else words
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


def _keep_a_spare() -> None:
    """Fork a child that does nothing but fork what this process starts with its own Python."""
    ours, its = socket.socketpair()
    parent = os.getpid()
    if os.fork() == 0:
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _serve(its, parent)
    its.close()
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)
    execute_child = functools.partialmethod(_execute_child, ours)
    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


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
    fresh = {"words": words[1:], "cwd": str(cwd or Path.cwd()), "env": env}
    self.pid = _ask(
        spare, [*files, *pass_fds], **fresh, session=session, numbers=[*map(int, pass_fds)]
    )
    self._child_created = True
    return self._close_pipe_fds(*pipes)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
