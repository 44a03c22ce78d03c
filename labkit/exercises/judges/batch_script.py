"""The judge of a batch script: reads it as sbatch does, and says what it does not ask for."""

import argparse
import re
import reprlib
import shlex
from collections.abc import Callable
from itertools import takewhile
from typing import Any, NoReturn

from labkit.exercises.task import Wrong

NAMES = {
    "nodes": "nodes", "ranks": "ranks in all", "gpus": "GPUs on each node", "minutes": "minutes",
    "cores": "cores for each rank", "memory": "GB on each node", "partition": "partition",
}  # fmt: skip


def batch_script(**wanted: object) -> Callable[[Any], None]:
    """A script that asks for what is wanted, and starts its program with srun."""

    def judge(script: Any) -> None:
        if not isinstance(script, str):
            raise Wrong(f"{reprlib.repr(script)} is not a text in three quotes.")
        text = script.lstrip("\n")
        _check_lines(text)
        for name, found in _asked(options_of(text)).items():
            if found != wanted[name]:
                asked = found if isinstance(found, str) else f"{found:g}"
                raise Wrong(f"{NAMES[name]}: it asks for {asked}, and {wanted[name]} is wanted.")
        _check_start(text, **{name: str(value) for name, value in wanted.items()})

    return judge


def _asked(options: argparse.Namespace) -> dict[str, float | str]:
    if options.mem_per_cpu:
        raise Wrong("--mem-per-cpu is for each core. Write --mem=64G for a node.")
    nodes = options.nodes
    ranks = options.ntasks or nodes * options.ntasks_per_node
    gpus = 0.0
    per_node = {"gpus": 1 / nodes, "gpus_per_task": ranks / nodes, "gpus_per_node": 1, "gres": 1}
    for name, share in per_node.items():
        given = (getattr(options, name) or "0").split(",")  # such as 2, a100:2, gpu, gpu:a100:2
        counts = [one.rpartition(":")[2] for one in given if name != "gres" or "gpu" in one]
        if count := sum(int(one) if one.isdigit() else 1 for one in counts):
            gpus = share * count
    memory = re.fullmatch(r"(\d+)([MG]?)B?", options.mem.upper())
    if memory is None:
        raise Wrong(f"--mem={options.mem} is not an amount of memory. Write --mem=64G.")
    size = int(memory[1])
    mega = 1000 if size % 1000 == 0 else 1024  # 64000 and 65536 are both written for 64G
    return {
        "nodes": nodes,
        "ranks": ranks,
        "gpus": gpus,
        "cores": options.cpus_per_task,
        "memory": size if memory[2] == "G" else size / mega,
        "minutes": seconds_of(options.time) / 60 if options.time else "no limit",
        "partition": options.partition,
    }


class _Sbatch(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Wrong(f"sbatch would refuse an option: {message}.")


def options_of(script: str) -> argparse.Namespace:
    r"""The options of a script; what follows the first command is ignored.

    >>> options_of("#!/bin/bash\n#SBATCH -N 2\necho hi\n#SBATCH --time=5").nodes
    2
    """
    words: list[str] = []
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if re.match(r"#SBATCH\s", line):
            try:
                words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                raise Wrong(f"A quote in {line!r} is not closed.") from None
    sbatch = _Sbatch("sbatch", add_help=False, allow_abbrev=False)
    sbatch.add_argument("-N", "--nodes", type=_whole, default=1)
    sbatch.add_argument("-n", "--ntasks", type=_whole)
    sbatch.add_argument("--ntasks-per-node", type=_whole, default=1)
    sbatch.add_argument("-c", "--cpus-per-task", type=_whole, default=1)
    sbatch.add_argument("-p", "--partition", default="none")
    sbatch.add_argument("-t", "--time")
    sbatch.add_argument("--mem", default="0")
    sbatch.add_argument("-G", "--gpus")
    for name in ("--mem-per-cpu", "--gpus-per-task", "--gpus-per-node", "--gres"):
        sbatch.add_argument(name)
    return sbatch.parse_known_args(words)[0]


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


def _check_lines(text: str) -> None:
    if not text.startswith("#!"):
        raise Wrong("sbatch must know which shell reads the script: its first line is #!/bin/bash.")
    if loose := re.search(r"^\s+#SBATCH|^#\s+SBATCH|^#sbatch", text, re.MULTILINE):
        raise Wrong(f"{loose[0]!r} is a comment for sbatch. The line begins with #SBATCH.")
    if late := re.search(r"^[^#\s].*\n(?:.*\n)*?(#SBATCH.*)", text, re.MULTILINE):
        raise Wrong(f"{late[1]!r} stands after the first command, and sbatch ignores it there.")


def _check_start(text: str, **wanted: str) -> None:
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
    srun = commands[at]
    if not re.match(r"((\w+=\S*|exec|time) +)*srun\b", srun):
        raise Wrong(
            f"{srun!r} runs once, on the first node, while the others idle. srun starts it once "
            "for each rank, with what Slurm has given to each."
        )
    if srun.endswith("&") and not any(re.match(r"wait\b", one) for one in commands[at:]):
        raise Wrong(
            f"{srun!r} runs in the background: the script ends at once, and so does the job."
        )
    given = re.search(r" (?:-n *|--ntasks[= ])(\d+)\b", srun.partition("python")[0])
    if given and given[1] != wanted["ranks"]:
        raise Wrong(f"{srun!r} starts {given[1]} of {wanted['ranks']} ranks: leave that to Slurm.")
    cores = wanted["cores"]
    # Since Slurm 22.05 srun ignores the --cpus-per-task of the job: it must be passed on.
    options = re.split(r"\spython[\d.]*\s", srun)[0]
    found = re.findall(r"\s(?:-c[ =]*|--cpus-per-task[= ])(\S+)", options)
    found += re.findall(r"\bSRUN_CPUS_PER_TASK=(\S+)", "\n".join([*commands[:at], options]))
    if not found:
        raise Wrong(
            f"{srun!r} asks for one core for each rank: since Slurm 22.05 srun does not inherit "
            "--cpus-per-task. Write srun --cpus-per-task=$SLURM_CPUS_PER_TASK."
        )
    inherited = ("$SLURM_CPUS_PER_TASK", "${SLURM_CPUS_PER_TASK}")
    if found[0].strip("\"'") not in (cores, *inherited):
        raise Wrong(f"{srun!r} passes on {found[0]} cores for each rank, and {cores} are wanted.")
