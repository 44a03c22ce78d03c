"""A real Slurm of one's own on this machine: controller, two nodes, a partition, authenticated.

Debian's packages `slurm-wlm` and `munge` have all that it needs. Nothing of it outlives `stop`, and
only its own processes are ever signalled.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

from labkit.cluster.ranks.ports import free_ports

DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol")
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CONFIGURATION = """\
ClusterName=labkit
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=2
OverTimeLimit=0
SchedulerParameters=sched_interval=1,batch_sched_delay=0
GresTypes=gpu
NodeName=127.0.0.2 NodeHostname={host} NodeAddr={address} Port={first} CPUs=4 RealMemory=64000 \
Gres=gpu:1 State=UNKNOWN
NodeName=127.0.0.3 NodeHostname={host} NodeAddr={address} Port={second} CPUs=4 RealMemory=64000 \
Gres=gpu:1 State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=alpha Nodes=ALL MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why no Slurm can be started here, or nothing."""
    missing = [name for name in DAEMONS if shutil.which(name, path=SEARCH) is None]
    if missing:
        return f"no {' and no '.join(missing)} here: apt-get install slurm-wlm"
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return "this machine's own name has no address"
    return "" if address.startswith("127.") else f"this machine's name is {address}, not loopback"


class PrivateSlurm:
    """Two nodes that are this machine, idle when `start` returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        host, user = socket.gethostname(), pwd.getpwuid(os.getuid()).pw_name
        port, first, second = free_ports(3)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / "state").mkdir()
        for node in ("127.0.0.2", "127.0.0.3"):
            (self.folder / f"spool-{node}").mkdir()
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        names = {"host": host.partition(".")[0], "address": socket.gethostbyname(host)}
        names |= {"port": port, "first": first, "second": second}
        text = CONFIGURATION.format(user=user, folder=self.folder, **names)
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))
        files = ("socket", "pid-file", "log-file", "seed-file")
        options = [f"--{name}={self.folder}/munge.{name.removesuffix('-file')}" for name in files]
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *options)
        wait_for((self.folder / "munge.socket").exists, "munged")
        self._daemon("slurmctld", "-D", "-c")
        for node in ("127.0.0.2", "127.0.0.3"):
            self._daemon("slurmd", "-D", "-c", "-N", node)
        wait_for(lambda: self.idle() == 2, "two idle nodes")

    def idle(self) -> int:
        """How many nodes wait for work."""
        return len(self.ask("sinfo", "-h", "-p", "lab", "-N", "-t", "idle").splitlines())

    def jobs(self) -> list[str]:
        """Jobs that are queued or running, as "name state"."""
        return self.ask("squeue", "-h", "-o", "%j %T").splitlines()

    def ask(self, *command: str) -> str:
        env = {**os.environ, **self.environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300).stdout

    def cancel_all(self) -> None:
        """End what is in the queue, and wait until it is empty."""
        if self.jobs():
            self.ask("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
            wait_for(lambda: not self.jobs(), "an empty queue")

    def stop(self) -> None:
        if (self.folder / "munge.socket").exists():
            self.cancel_all()
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()

    def _daemon(self, name: str, *options: str) -> None:
        program = shutil.which(name, path=SEARCH)
        assert program is not None
        log = self.folder / f"{name}{len(self._daemons)}.log"
        with log.open("wb") as said:
            daemon = subprocess.Popen(
                # When pytest is killed, as Ctrl-C does with the processes of xdist, it ends, too.
                ["setpriv", "--pdeathsig", "TERM", program, *options],
                stdin=subprocess.DEVNULL, stdout=said, start_new_session=True,
                stderr=subprocess.STDOUT, env={**os.environ, **self.environment, "PATH": SEARCH},
            )  # fmt: skip
        self._daemons.append(daemon)


def wait_for(true, what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)
