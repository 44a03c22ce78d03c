"""Kernels of notebooks under test, each a fork of one process that has imported TensorFlow.

Starting IPython and importing TensorFlow, Keras and matplotlib takes four seconds of CPU for each
notebook; here it takes them once for each process of pytest. Linux; elsewhere, kernels start cold.
"""

from __future__ import annotations

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
from typing import Any, NoReturn

IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib.pyplot", "keras", "tensorflow",
    "labkit.exercises", "labkit.training", "labkit.strategies",
)  # fmt: skip
INLINE = "module://matplotlib_inline.backend_inline"


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
        self.pid = _ask(words=words, cwd=str(cwd), env=env)
        self._ended = os.pidfd_open(self.pid)

    def poll(self, seconds: float | None = 0) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = _ask(reap=self.pid)
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


def _ask(**request: Any) -> int:
    server, _ = _server()
    server.send(json.dumps(request).encode())
    return int(server.recv(100))


def _main(number: int) -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends with it; read at import
    gc.disable()  # it would take a fifth of the seconds of the imports
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy every page of these objects
    _serve(socket.socket(fileno=number))


def _serve(its: socket.socket) -> NoReturn:
    """Fork a kernel for each request, and reap it for another."""
    while True:
        asked = its.recv(2**20)
        if not asked:
            os._exit(0)  # to free all that was imported would take a second
        request = json.loads(asked)
        if "reap" in request:
            code = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            its.send(str(code).encode())
        elif os.fork() == 0:
            os.setsid()
            its.send(str(os.getpid()).encode())  # not before: who asked takes it for a group
            its.close()
            _be_kernel(**request)


def _be_kernel(words: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """Be like a Python that has just started, with `-m` and these words on its command line."""
    import numpy as np

    signal.signal(signal.SIGINT, signal.default_int_handler)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update({**env, "JPY_PARENT_PID": str(os.getppid())})
    time.tzset()
    np.random.seed()  # noqa: NPY002 (all are copies of one process)
    gc.enable()
    sys.argv[:] = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _main(int(sys.argv[1]))
