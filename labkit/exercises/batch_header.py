"""Reads what a batch script asks of Slurm, as sbatch would, and says what it does not ask for."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from labkit.kinds import LabError, seconds_text

__all__ = ["Wanted", "options_of", "seconds_of", "unmet"]

# Short options and other spellings, under the long name of the same thing.
SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time", "p": "partition",
    "A": "account", "J": "job-name", "o": "output", "e": "error", "G": "gpus", "w": "nodelist",
}  # fmt: skip
LONG = {*SHORT.values(), "ntasks-per-node", "gres", "gpus-per-node", "gpus-per-task", "mem",
        "mem-per-cpu", "mem-per-gpu", "exclusive", "mail-type", "mail-user", "array", "dependency",
        "constraint", "qos", "reservation", "signal", "requeue", "no-requeue", "export", "chdir",
        "open-mode", "begin", "comment", "hint"}  # fmt: skip
UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True)
class Wanted:
    """What a script shall ask for; memory is per node, in GiB."""

    nodes: int
    ranks: int
    gpus: int
    cpus: int
    memory: float
    hours: float
    partition: str


def options_of(script: str) -> dict[str, str]:
    r"""The options of a script by their long names; what follows the first command is ignored.

    >>> options_of("#!/bin/bash\n#SBATCH -N 2\necho hi\n#SBATCH --time=5")
    {'nodes': '2'}
    """
    found: dict[str, str] = {}
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if not re.match(r"#SBATCH\s", line):
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError:
            raise LabError(f"A quote in {line!r} is not closed.") from None
        while words:
            name, value = _option(words.pop(0), line)
            if not value and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[name] = value
    return found


def seconds_of(time: str) -> int:
    """Slurm's ways to write a time, in seconds.

    >>> seconds_of("90"), seconds_of("90:00"), seconds_of("1:30:00"), seconds_of("1-12")
    (5400, 5400, 5400, 129600)
    """
    if not re.fullmatch(r"(\d+-\d+(:\d+){0,2})|(\d+(:\d+){0,2})", time):
        raise LabError(f"--time={time} is no time of Slurm's. Write hours:minutes:seconds.")
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # After days come hours; without days one number is minutes, two are minutes and seconds.
    places = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    inside = sum(part * place for part, place in zip(parts, places, strict=False))
    return int(days or 0) * 86_400 + inside


def unmet(script: object, wanted: Wanted) -> str | None:
    """The first thing that a script does not ask for as it should, or nothing."""
    if not isinstance(script, str):
        raise LabError(
            f"A script is a text, and this is {script!r}. Write it between three quotes."
        )
    text = script.lstrip("\n")
    if not text.strip() or text.strip() == "...":
        return None
    if not text.startswith("#!"):
        return "sbatch wants to know who shall read the script: its first line is #!/bin/bash."
    loose = re.search(r"^\s+#SBATCH|^#\s+SBATCH|^#sbatch", text, re.MULTILINE)
    if loose:
        return f"{loose[0]!r} is a comment for sbatch. The line begins with #SBATCH and a blank."
    late = _late(text)
    if late:
        return f"{late!r} stands after the first command, and sbatch ignores it there."
    return _asked(options_of(text), wanted) or _started(text, wanted.ranks)


def _asked(options: dict[str, str], wanted: Wanted) -> str:
    nodes = _number(options, "nodes", 1)
    per_node = _number(options, "ntasks-per-node", 0)
    ranks = _number(options, "ntasks", per_node * nodes if per_node else nodes)
    seconds = seconds_of(options["time"]) if "time" in options else 0
    told = "without --time you get the partition's own limit" if not seconds else (
        f"--time={options['time']} is {seconds_text(seconds)}"
    )  # fmt: skip
    memory = _mebibytes(options) / 1024
    rows = (
        (nodes != wanted.nodes, f"it asks for {nodes} nodes; {wanted.nodes} are wanted"),
        (ranks != wanted.ranks, f"{ranks} ranks would be started; {wanted.ranks} are wanted"),
        (
            per_node and per_node * nodes != wanted.ranks,
            f"{per_node} ranks on each of {nodes} nodes are not {wanted.ranks}",
        ),
        (
            _gpus(options, nodes, ranks) != wanted.gpus,
            f"each node gets {_gpus(options, nodes, ranks):g} GPUs; {wanted.gpus} are wanted",
        ),
        (
            _number(options, "cpus-per-task", 1) != wanted.cpus,
            f"each rank gets {_number(options, 'cpus-per-task', 1)} cores; {wanted.cpus} are "
            "wanted",
        ),
        (
            round(memory, 1) not in (wanted.memory, round(wanted.memory * 1000 / 1024, 1)),
            f"each node gets {memory:g} GB of memory; {wanted.memory:g} are wanted"
            if memory
            else "it says nothing of memory",
        ),
        (seconds != 3600 * wanted.hours, f"{told}; {seconds_text(3600 * wanted.hours)} are wanted"),
        (
            options.get("partition") != wanted.partition,
            f"the partition is {options.get('partition')!r}; {wanted.partition!r} is wanted",
        ),
    )
    first = next((words for wrong, words in rows if wrong), "")
    return f"{first[:1].upper()}{first[1:]}." if first else ""


def _started(text: str, ranks: int) -> str:
    lines = [line.strip() for line in text.splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    if not commands:
        return "It asks for machines and starts nothing on them. Its last line is the program's."
    sruns = [line for line in commands if re.match(r"(\w+=\S* +|exec +|time +)*srun\b", line)]
    if not sruns:
        if re.search(r"\bmpi(run|exec)\b", commands[-1]):
            return f"{commands[-1]!r} is for programs of MPI. Slurm's own word is srun."
        return (
            f"{commands[-1]!r} runs once, on the first node, while the others idle. srun starts it "
            "once for each rank."
        )
    fewer = re.search(r" (?:-n *|--ntasks[= ])(\d+)\b", sruns[-1])
    if fewer and int(fewer[1]) != ranks:
        return (
            f"{sruns[-1]!r} starts {fewer[1]} of {ranks} ranks. Without that option it starts all."
        )
    return ""


def _option(word: str, line: str) -> tuple[str, str]:
    if word.startswith("--"):
        name, _, value = word[2:].partition("=")
    elif re.match(r"-[A-Za-z]", word):
        name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
    else:
        raise LabError(f"In {line!r}, sbatch does not understand {word!r}. Options begin with --.")
    if name not in LONG:
        raise LabError(f"sbatch has no option {name!r}, as in {line!r}.")
    return name, value


def _late(text: str) -> str:
    begun = False
    for line in text.splitlines():
        if begun and line.startswith("#SBATCH"):
            return line
        begun = begun or bool(line.strip() and not line.startswith("#"))
    return ""


def _number(options: dict[str, str], name: str, default: int) -> int:
    value = options.get(name)
    if value is None:
        return default
    if not value.isdigit():
        raise LabError(f"--{name}={value} is no whole number.")
    return int(value)


def _gpus(options: dict[str, str], nodes: int, ranks: int) -> float:
    """GPUs of each node."""
    if "gres" in options:
        found = re.fullmatch(r"gpu(?::[a-zA-Z]\w*)?(?::(\d+))?", options["gres"])
        if found is None:
            raise LabError(f"--gres={options['gres']} asks for no GPU. Write --gres=gpu:1.")
        return int(found[1] or 1)
    for name, share in (
        ("gpus-per-node", 1.0),
        ("gpus-per-task", ranks / nodes),
        ("gpus", 1 / nodes),
    ):
        if name in options:
            count = options[name].rpartition(":")[2]
            return int(count) * share if count.isdigit() else 0
    return 0


def _mebibytes(options: dict[str, str]) -> float:
    value = options.get("mem", "")
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", value, re.IGNORECASE)
    if value and found is None:
        raise LabError(f"--mem={value} is no amount of memory. Write --mem=64G.")
    return int(found[1]) * UNITS[(found[2] or "M").upper()] if found else 0.0
