"""The judge of a batch script: reads it as sbatch does, and says what it does not ask for."""

from __future__ import annotations

import re
import reprlib
import shlex
from collections.abc import Callable
from typing import Any

from labkit.exercises.task import Unanswered, Wrong

__all__ = ["batch_script", "options_of", "seconds_of"]

SHORT = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time", "p": "partition"}
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
        if text.strip() in ("", "..."):
            raise Unanswered
        _check_lines(text)
        for name, found in _asked(options_of(text)).items():
            if found != wanted[name]:
                asked = found if isinstance(found, str) else f"{found:g}"
                raise Wrong(f"{NAMES[name]}: it asks for {asked}, and {wanted[name]} is wanted.")
        _check_start(text, str(wanted["ranks"]), str(wanted["cores"]))

    return judge


def _asked(options: dict[str, str]) -> dict[str, float | str]:
    nodes = _whole(options, "nodes", 1)
    ranks = _whole(options, "ntasks", nodes * _whole(options, "ntasks-per-node", 1))
    gpus = 0.0
    per_node = {"gpus": 1 / nodes, "gpus-per-task": ranks / nodes, "gpus-per-node": 1, "gres": 1}
    for name, share in per_node.items():
        if name in options:
            count = options[name].rpartition(":")[2]
            gpus = share * (int(count) if count.isdigit() else 1)
    if not options.get("gres", "gpu").startswith("gpu"):
        raise Wrong(f"--gres={options['gres']} asks for no GPU. Write --gres=gpu:1.")
    memory = re.fullmatch(r"(\d+)([MGT]?)B?", options.get("mem", "0").upper())
    if memory is None:
        raise Wrong(f"--mem={options['mem']} is not an amount of memory. Write --mem=64G.")
    size, unit = int(memory[1]), memory[2] or "M"
    mega = 1000 if size % 1000 == 0 else 1024  # 64000 and 65536 are both written for 64G
    return {
        "nodes": nodes,
        "ranks": ranks,
        "gpus": gpus,
        "cores": _whole(options, "cpus-per-task", 1),
        "memory": size * {"M": 1 / mega, "G": 1, "T": 1024}[unit],
        "minutes": seconds_of(options["time"]) / 60 if "time" in options else "no limit",
        "partition": options.get("partition", "none"),
    }


def options_of(script: str) -> dict[str, str]:
    r"""The options of a script by their long names; what follows the first command is ignored.

    >>> options_of("#!/bin/bash\n#SBATCH -N 2\necho hi\n#SBATCH --time=5")
    {'nodes': '2'}
    """
    options = {}
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if not re.match(r"#SBATCH\s", line):
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError:
            raise Wrong(f"A quote in {line!r} is not closed.") from None
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if option := re.fullmatch(r"--([\w-]+)=?(.*)|-([A-Za-z])=?(.*)", word):
                name = option[1] or SHORT.get(option[3], option[3])
                options[name] = option[2] or option[4] or following
    return options


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


def _check_lines(text: str) -> None:
    if not text.startswith("#!"):
        raise Wrong("sbatch must know which shell reads the script: its first line is #!/bin/bash.")
    if loose := re.search(r"^\s+#SBATCH|^#\s+SBATCH|^#sbatch", text, re.MULTILINE):
        raise Wrong(f"{loose[0]!r} is a comment for sbatch. The line begins with #SBATCH.")
    if late := re.search(r"^[^#\s].*\n(?:.*\n)*?(#SBATCH.*)", text, re.MULTILINE):
        raise Wrong(f"{late[1]!r} stands after the first command, and sbatch ignores it there.")


def _check_start(text: str, ranks: str, cores: str) -> None:
    lines = map(str.strip, re.sub(r"\\\n", " ", text).splitlines())
    commands = [line for line in lines if line and line[0] != "#"]
    if not commands:
        raise Wrong("It asks for nodes and starts nothing on them. Its last line is the program's.")
    sruns = [line for line in commands if re.match(r"(\w+=\S* +|exec +|time +)*srun\b", line)]
    if not sruns:
        text = f"{commands[-1]!r} runs once, on the first node, while the others idle."
        raise Wrong(f"{text} srun starts it once for each rank.")
    fewer = re.search(r" (?:-n *|--ntasks[= ])(\d+)\b", sruns[-1])
    if fewer and fewer[1] != ranks:
        raise Wrong(f"{sruns[-1]!r} starts {fewer[1]} of {ranks} ranks. srun alone starts all.")
    _check_cores(commands[: commands.index(sruns[-1])], sruns[-1], cores)


def _check_cores(before: list[str], srun: str, cores: str) -> None:
    """Since Slurm 22.05 srun ignores the --cpus-per-task of the job: it must be passed on."""
    options = re.split(r"\spython[\d.]*\s", srun)[0]
    found = re.findall(r"\s(?:-c[ =]*|--cpus-per-task[= ])(\S+)", options)
    found += re.findall(r"\bSRUN_CPUS_PER_TASK=(\S+)", "\n".join([*before, options]))
    if not found and cores != "1":
        raise Wrong(
            f"{srun!r} asks for one core for each rank: since Slurm 22.05 srun does not inherit "
            "--cpus-per-task. Write srun --cpus-per-task=$SLURM_CPUS_PER_TASK."
        )
    inherited = ("$SLURM_CPUS_PER_TASK", "${SLURM_CPUS_PER_TASK}")
    if found and found[0].strip("\"'") not in (cores, *inherited):
        raise Wrong(f"{srun!r} passes on {found[0]} cores for each rank, and {cores} are wanted.")


def _whole(options: dict[str, str], name: str, default: int) -> int:
    value = options.get(name, str(default))
    if not value.isdigit() or value == "0":
        raise Wrong(f"--{name}={value} must be a whole number from 1 on.")
    return int(value)
