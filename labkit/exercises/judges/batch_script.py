"""The judge of a batch script: reads it as sbatch does, and says what it does not ask for."""

import argparse
import re
import reprlib
import shlex
from collections.abc import Callable, Mapping
from itertools import takewhile
from math import ceil
from typing import Any, NoReturn

from labkit.exercises.task import Wrong

NAMES = {
    "nodes": "nodes", "ranks": "ranks in all", "gpus": "GPUs on each node", "minutes": "minutes",
    "cores": "cores for each rank", "memory": "GB on each node", "partition": "partition",
}  # fmt: skip
# The options of Slurm 24.05, each with its letter; of srun those that a job's step can have.
VALUES = """account=A array=a batch bb bbf begin=b chdir=D cluster-constraint clusters=M comment
constraint=C container container-id core-spec=S cores-per-socket cpu-freq cpus-per-gpu deadline
delay-boot dependency=d distribution=m error=e exclude=x export export-file extra
extra-node-info=B gid gpu-bind gpu-freq gpus=G gpus-per-node gpus-per-socket gpus-per-task gres
gres-flags hint input=i job-name=J kill-on-invalid-dep licenses=L mail-type mail-user mcs-label mem
mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile=F nodelist=w ntasks-per-core
ntasks-per-gpu ntasks-per-socket open-mode output=o partition=p prefer priority profile qos=q
reservation signal sockets-per-node switches thread-spec threads-per-core time=t time-min tmp
tres-bind tres-per-task uid wait-all-nodes wckey wrap"""
FLAGS = """contiguous exclusive get-user-env hold=H ignore-pbs nice no-kill=k no-requeue
overcommit=O oversubscribe=s parsable propagate quiet=Q reboot requeue spread-job stepmgr test-only
use-min-nodes verbose=v"""
SRUN_VALUES = """accel-bind bcast cpu-bind epilog het-group jobid mpi msg-timeout prolog relative=r
task-epilog task-prolog threads=T wait=W"""
SRUN_FLAGS = """compress disable-status=X exact immediate=I kill-on-bad-exit=K label=l multi-prog
overlap preserve-env=E pty quit-on-interrupt unbuffered=u whole"""


def batch_script(**wanted: Any) -> Callable[[Any], None]:
    """A script that asks for what is wanted, and starts its program with srun."""

    def judge(script: Any) -> None:
        if not isinstance(script, str):
            raise Wrong(f"{reprlib.repr(script)} is not a text in three quotes.")
        text = script.lstrip("\n")
        if not text.startswith("#!"):
            told = "its first line is #!/bin/bash."
            raise Wrong(f"sbatch must know which shell reads the script: {told}")
        for name, found in _asked(options_of(text)).items():
            if found != wanted[name]:
                asked = found if isinstance(found, str) else f"{found:g}"
                text = f"{NAMES[name]}: it asks for {asked}, and {wanted[name]} is wanted."
                raise Wrong(f"{text}{_unread(script)}")
        _check_start(text, wanted)

    return judge


def _asked(options: argparse.Namespace) -> dict[str, float | str]:
    if options.mem_per_cpu:
        raise Wrong("--mem-per-cpu is for each core. Write --mem=64G for a node.")
    each, ranks = options.ntasks_per_node, options.ntasks
    nodes = options.nodes or (ceil(ranks / each) if ranks and each else 1)
    if each and ranks and ranks != nodes * each:
        raise Wrong(f"--ntasks={ranks} is not {nodes} nodes with --ntasks-per-node={each}.")
    if not each and (ranks or 0) > nodes > 1:
        text = f"Slurm may divide --ntasks={ranks} unevenly on {nodes} nodes"
        raise Wrong(f"{text}: --ntasks-per-node says how many are on each.")
    ranks = ranks or nodes * (each or 1)
    gpus = 0.0
    per_node = {"gpus": 1 / nodes, "gpus_per_task": ranks / nodes, "gpus_per_node": 1, "gres": 1}
    for name, share in per_node.items():
        given = (getattr(options, name) or "0").split(",")  # such as 2, a100:2, gpu, gpu:a100:2
        counts = [one.rpartition(":")[2] for one in given
                  if name != "gres" or one.split(":")[0] == "gpu"]  # fmt: skip
        if count := sum(int(one) if one.isdigit() else 1 for one in counts):
            gpus = share * count
    memory = re.fullmatch(r"(\d+)([KMGT]?)B?", (options.mem or "0").upper())
    if memory is None:
        raise Wrong(f"--mem={options.mem} is not an amount of memory. Write --mem=64G.")
    size = int(memory[1])
    mega = 1000 if size % 1000 == 0 else 1024  # 64000 and 65536 are both written for 64G
    units = {"K": 2**-20, "G": 1, "T": 1024}
    return {
        "nodes": nodes,
        "ranks": ranks,
        "cores": options.cpus_per_task or 1,
        "gpus": gpus,
        "memory": size * units.get(memory[2], 1 / mega),
        "minutes": seconds_of(options.time) / 60 if options.time else "no limit",
        "partition": options.partition or "none",
    }


class _Parser(argparse.ArgumentParser):
    """Options as getopt_long of C reads them: the beginning of a name is enough, if it is alone."""

    def __init__(self, command: str, values: str, flags: str) -> None:
        super().__init__(command, add_help=False)
        self.add_argument("-N", "--nodes", type=_nodes)
        self.add_argument("-n", "--ntasks", type=_whole)
        self.add_argument("--ntasks-per-node", "--tasks-per-node", type=_whole)
        self.add_argument("-c", "--cpus-per-task", type=_whole)
        for action, options in (("store", values), ("store_true", flags)):
            for name, _, letter in (one.partition("=") for one in options.split()):
                self.add_argument(*[f"-{letter}"] * bool(letter), f"--{name}", action=action)
        if command == "srun":  # what follows are the program's own options, such as those of bash
            self.add_argument("program", nargs=argparse.REMAINDER)
        optional = "|".join(one.partition("=")[0] for one in flags.split())
        self._value = re.compile(f"^(--(?:{optional}))=.*")  # such as --exclusive=user

    def error(self, message: str) -> NoReturn:
        raise Wrong(f"{self.prog} would refuse an option: {message}.")

    def read(self, words: list[str]) -> argparse.Namespace:
        """The options, up to the program of srun or what starts it, such as `time`."""
        found, others = self.parse_known_args([self._value.sub(r"\1", one) for one in words])
        if others:
            self.error(f"it does not know {others[0]}")
        return found


def options_of(script: str) -> argparse.Namespace:
    r"""The options of a script; what follows the first command is ignored.

    >>> options_of("#!/bin/bash\n#SBATCH -N 2\necho hi\n#SBATCH --time=5").nodes
    2
    """
    words: list[str] = []
    for line in script.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if re.match(r"#SBATCH\s", line):
            try:
                words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                raise Wrong(f"A quote in {line!r} is not closed.") from None
    return _Parser("sbatch", VALUES, f"{FLAGS} wait=W").read(words)


def seconds_of(time: str) -> int:
    """Slurm's ways to write a time, in seconds.

    >>> seconds_of("90"), seconds_of("90:00"), seconds_of("1:30:00"), seconds_of("1-12")
    (5400, 5400, 5400, 129600)
    """
    if not re.fullmatch(r"(\d+-\d+(:\d+){0,2})|(\d+(:\d+){0,2})", time):
        raise Wrong(f"--time={time} is not a time. Write hours:minutes:seconds.")
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # After days come hours; without days one number is minutes, two are minutes and seconds.
    sizes = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    inside = sum(part * size for part, size in zip(parts, sizes, strict=False))
    return int(days or 0) * 86_400 + inside


def _whole(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number from 1 on")
    return int(text)


def _nodes(text: str) -> int:
    least, _, most = text.partition("-")
    if most and most != least:
        raise argparse.ArgumentTypeError(f"{text} leaves open how many nodes it gets")
    return _whole(least)


def _unread(text: str) -> str:
    """What looks like an option, and is none for sbatch."""
    if loose := re.search(r"^\s+#SBATCH|^#\s+SBATCH|^#sbatch", text, re.MULTILINE):
        return f" {loose[0].strip()!r} is a comment for sbatch. The line begins with #SBATCH."
    if late := re.search(r"^[^#\s].*\n(?:.*\n)*?(#SBATCH.*)", text, re.MULTILINE):
        return f" {late[1]!r} stands after the first command, and sbatch ignores it there."
    return ""


def _check_start(text: str, wanted: Mapping[str, Any]) -> None:
    text = re.sub(r"\\\n", " ", text)
    lines = [line.strip() for line in re.split(r"\n|&&|;", text)]
    commands = [line for line in lines if line and line[0] != "#"]
    commands = list(takewhile(lambda one: not one.startswith("exit"), commands))
    if not commands:
        raise Wrong("It asks for nodes and starts nothing on them. Its last line is the program's.")
    # Before and after the program there may be other commands, such as `echo done`.
    program = r"python[\d.]*(\s+-\S+)*\s+\S*train\.py"
    at = next((n for n, one in enumerate(commands) if re.search(program, one)), -1)
    if at < 0:
        raise Wrong(f"No line starts python train.py. The last one is {commands[-1]!r}.")
    line = commands[at]
    if not re.match(r"((\w+=\S*|exec|time) +)*srun\b", line):
        raise Wrong(
            f"{line!r} is not started by srun, so it runs once, on the first node, or as mpirun "
            "likes. srun starts it once for each rank, with what Slurm has given to each."
        )
    if line.endswith("&") and not any(re.match(r"wait\b", one) for one in commands[at:]):
        raise Wrong(
            f"{line!r} runs in the background, so the script ends at once, and so does the job."
        )
    nodes, ranks, cores = (wanted[name] for name in ("nodes", "ranks", "cores"))
    variables = {f"SLURM_{name}": f"{value}" for name, value in (
        ("CPUS_PER_TASK", cores), ("NTASKS", ranks), ("NPROCS", ranks), ("NNODES", nodes),
        ("JOB_NUM_NODES", nodes), ("NTASKS_PER_NODE", ranks // nodes),
    )}  # fmt: skip
    before, _, after = re.split(r"\bpython", line)[0].rpartition("srun")
    for one in [*commands[:at], *before.split()]:
        if given := re.match(r"(?:export +)?(\w+)=(\S+)", one):
            variables[given[1]] = _expanded(given[2], variables).strip("\"'")
    words = re.sub("[\"']", "", _expanded(after, variables)).split()
    srun = _Parser("srun", f"{VALUES} {SRUN_VALUES}", f"{FLAGS} {SRUN_FLAGS}").read(words)
    for given, name, right in (
        (srun.ntasks, "ranks", ranks),
        (srun.ntasks_per_node, "ranks on each node", ranks // nodes),
        (srun.nodes, "nodes", nodes),
    ):
        if given not in (None, right):
            raise Wrong(f"{line!r} starts {given} of {right} {name}: leave that to Slurm.")
    # Since Slurm 22.05 srun ignores the --cpus-per-task of the job: it must be passed on.
    found = srun.cpus_per_task or variables.get("SRUN_CPUS_PER_TASK")
    if not found:
        raise Wrong(
            f"{line!r} asks for one core for each rank. Since Slurm 22.05 srun does not inherit "
            "--cpus-per-task. Write srun --cpus-per-task=$SLURM_CPUS_PER_TASK."
        )
    if str(found) != str(cores):
        raise Wrong(f"{line!r} passes on {found} cores for each rank, and {cores} are wanted.")


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with the values of $NAME, ${NAME}, ${NAME:-default} and $((NAME))."""
    text = re.sub(r"\$\(\(\s*\$?(\w+)\s*\)\)", r"${\1:-\1}", text)
    names = r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))"
    return re.sub(names, lambda one: variables.get(one[1] or one[3], one[2] or ""), text)
