"""`python -I -S warm_script.py SCRIPT ARGUMENTS`: a fork of the warm process runs the script.

This process passes its output and its signals on, and ends as the fork does; the fork ends with it.
"""

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path


def _main(script: str, *arguments: str) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"\0{os.environ['LABKIT_WARM']}")
    request = {"be": "script", "script": script, "arguments": arguments, "owner": os.getpid(),
               "cwd": str(Path.cwd()), "env": dict(os.environ)}  # fmt: skip
    socket.send_fds(server, [json.dumps(request).encode()], (1, 2))
    pid = int(server.recv(100))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os.kill(pid, number))
    select.select([os.pidfd_open(pid)], [], [])
    server.send(json.dumps({"reap": pid}).encode())
    code = int(server.recv(100))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
