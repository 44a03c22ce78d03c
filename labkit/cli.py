"""The command `labkit`: get ready for class, open the lab, and renew what is drawn and printed.

$ labkit doctor
$ labkit lab
"""

import argparse
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from labkit import __version__
from labkit.arguments import near
from labkit.kinds import LabError

_FIRST = "00_start_here.ipynb"
_WORKSPACE = "course"  # as JupyterLab calls what is open, and where
_SETTINGS = Path(__file__).parent / "lab_settings"
_RULES = Path(__file__).parent / "views" / "static"  # of custom.css

COMMANDS = {  # what each does, and an example
    "doctor": ("check this machine before class", "doctor"),
    "lab": ("open the course in JupyterLab, with JupyterLab's own options", "lab --port 9000"),
    "progress": ("show the tasks that you have solved, by lecture", "progress"),
    "record": ("sample the devices while a program runs", "record -- python train.py"),
    "replay": ("show a recording in the browser", "replay run.jsonl"),
    "explain": ("measure why a training program is slow", "explain -- python train.py"),
    "study": ("measure how this machine scales, as a recording", "study --devices 1,2"),
    "env": ("environments beside the course: torch, horovod, flower", "env build torch"),
    "slurm": ("batch scripts for a cluster with Slurm", "slurm script train.py"),
    "release": ("write the notebooks for students, for grading", "release course 20 21"),
    "grade": ("grade the notebooks that students handed in", "grade submitted 20"),
    "notebooks": ("run notebooks and keep their results", "notebooks 20"),
    "slides": ("write a lecture as slides for any browser", "slides 20 --to slides"),
    "class": ("show the guesses of a class as it makes them", "class --port 9000"),
    "env list": ("list what is built, with its size and versions", "env list"),
    "env build": ("build environments, unless they are built", "env build torch"),
    "env remove": ("remove what was built", "env remove torch"),
    "slurm script": ("write the batch script for a program", "slurm script train.py --ranks 4"),
    "slurm run": ("run a program as the rank that srun has made of us", "slurm run train.py:main"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code: 2 for a mistake that a message explains."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a terminal need not have every letter of a name
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = _parser()
    chosen, extra = parser.parse_known_args(argv)
    if extra and chosen.command != "lab":
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    if chosen.command is None:
        parser.print_help()
        return 0
    try:
        code = _run(chosen, extra)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `labkit progress | head`: the reader has all that it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LabError, OSError) as fault:  # the latter names what cannot be read or written
        print(f"labkit {chosen.command}: {fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def course_folder() -> Path | None:
    """The folder that holds notebooks/: around you, or around labkit itself."""
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "notebooks" / _FIRST).is_file():
                return folder
    return None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Suggests the command that is nearest to a wrong one."""
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += "." + near(found[1], re.findall(r"[\w-]+", found[2]))
        super().error(message)


def _add(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add a command whose --help says what it does, with an example."""
    does, example = COMMANDS[name]
    parser: argparse.ArgumentParser = commands.add_parser(
        name.rpartition(" ")[2], help=does, description=f"{does[0].upper()}{does[1:]}.",
        epilog=f"Example: labkit {example}",
    )  # fmt: skip
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="labkit", description="The course's helper: distributed deep learning, hands on."
    )
    parser.add_argument("--version", action="version", version=f"labkit {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    doctor = _add(commands, "doctor")
    job = "also submit a job of two ranks, as labkit-centre.toml asks"
    doctor.add_argument("--job", action="store_true", help=job)
    _add(commands, "lab")
    progress = _add(commands, "progress")
    progress.add_argument("folder", nargs="?", type=Path, help="of the notebooks")
    record = _add(commands, "record")
    record.add_argument("--to", type=Path, metavar="FILE", help="where to write; a new file")
    record.add_argument("--every", type=float, default=0.1, help="seconds between two samples")
    record.add_argument("program", nargs=argparse.REMAINDER, help="-- python train.py")
    replay = _add(commands, "replay")
    replay.add_argument("file", type=Path)
    replay.add_argument("--html", type=Path, help="write the page here, and do not open it")
    explain = _add(commands, "explain")
    explain.add_argument(
        "--for",
        dest="time",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="of the runs after the watched one; 180 if not given",
    )
    explain.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    explain.add_argument("--html", type=Path, metavar="FILE", help="write a page")
    explain.add_argument("--compare", nargs=2, type=Path, metavar="FILE", help="of two --json")
    explain.add_argument("program", nargs=argparse.REMAINDER, help="-- python train.py")
    _add_study(_add(commands, "study"))
    _add_env(_add(commands, "env"))
    _add_slurm(_add(commands, "slurm"))
    release = _add(commands, "release")
    release.add_argument("out", type=Path, help="the folder to write; a course of nbgrader")
    release.add_argument("names", nargs="*", help="which lectures; all if none is named")
    release.add_argument("--personal", action="store_true", help="numbers by a student's key")
    _add_grade(_add(commands, "grade"))
    notebooks = _add(commands, "notebooks")
    notebooks.add_argument("names", nargs="*", help="which ones; all if none is named")
    slides = _add(commands, "slides")
    slides.add_argument("names", nargs="*", help="which ones; all if none is named")
    slides.add_argument(
        "--to", type=Path, default=Path("slides"), help="a folder; slides/ if not given"
    )
    classroom = _add(commands, "class")
    classroom.add_argument("--port", type=int, default=8765, help="8765 if not given")
    return parser


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--devices", default="1,2", help="how many; 1,2 if not given")
    parser.add_argument("--for", dest="time", default="minute", help="minute, ten, hour or seconds")
    parser.add_argument("--framework", default="tensorflow", help="tensorflow, torch or both")
    parser.add_argument("--link", metavar="RATE", help='hosts with links, such as "200 Mbit/s"')
    parser.add_argument("--nodes", type=int, help="in a job of Slurm on so many machines")
    parser.add_argument("--gpus", type=int, help="on each of these machines")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write; a new file")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on with this one")


def _add_env(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="env", metavar="command", required=True)
    _add(commands, "env list")
    build = _add(commands, "env build")
    again = "also one that is built; packages that you added with its own pip go"
    build.add_argument("--again", action="store_true", help=again)
    for command in (build, _add(commands, "env remove")):
        command.add_argument("names", nargs="+", metavar="NAME", help="see `labkit env list`")


def _add_grade(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="with a folder or a notebook of each student")
    parser.add_argument("names", nargs="*", help="which lectures; those handed in if none is named")
    parser.add_argument("--personal", action="store_true", help="as it was released")
    parser.add_argument("--anonymous", action="store_true", help="numbers in the place of names")
    parser.add_argument(
        "--class-list", type=Path, metavar="CSV", help="what Moodle or Canvas exports"
    )
    unprotected = "also where answers can read your files and use your network"
    parser.add_argument("--unprotected", action="store_true", help=unprotected)


def _add_slurm(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="slurm", metavar="command", required=True)
    script = _add(commands, "slurm script")
    script.add_argument("file", type=Path, metavar="FILE", help="a .py file")
    script.add_argument("--program", metavar="NAME", help="which function, if there are several")
    script.add_argument("--ranks", type=int, default=2, help="how many processes; 2 if not given")
    script.add_argument("--nodes", type=int, help="on how many machines")
    script.add_argument("--partition", help="one of those that `sinfo` lists")
    script.add_argument("--time", help='at most: "30" minutes, "1:30:00", "2-00:00:00"')
    script.add_argument("--account", help="your project")
    script.add_argument("--gpus", type=int, help="on each node")
    script.add_argument("--memory", help='on each node, such as "16G"')
    script.add_argument("--cpus", type=int, help="cores for each rank")
    script.add_argument("-o", "--output", type=Path, metavar="JOB.sh", help="print it if not given")
    run = _add(commands, "slurm run")
    run.add_argument("target", metavar="FILE.py:NAME", help="the function, called with its rank")


def _run(chosen: argparse.Namespace, extra: Sequence[str]) -> int:
    """Each command's room is imported only for its own command."""
    if chosen.command == "lab":
        return _lab(extra)
    if chosen.command == "doctor":
        return int(importlib.import_module("labkit.doctor").main(chosen.job))
    if chosen.command == "progress":
        return _progress(chosen.folder)
    if chosen.command == "release":
        release = importlib.import_module("labkit.kit.release")
        return int(release.main(chosen.out, chosen.names, personal=chosen.personal))
    if chosen.command == "grade":
        options = {name: getattr(chosen, name) for name in ("class_list", "personal", "anonymous")}
        grade = importlib.import_module("labkit.kit.grade")
        options["protected"] = not chosen.unprotected
        return int(grade.main(chosen.folder, chosen.names, **options))
    if chosen.command == "notebooks":
        return int(importlib.import_module("labkit.publish").main(chosen.names))
    if chosen.command == "slides":
        return int(importlib.import_module("labkit.kit.slides").main(chosen.names, chosen.to))
    if chosen.command == "class":
        return int(importlib.import_module("labkit.kit.classroom").main(chosen.port))
    if chosen.command == "env":
        check = importlib.import_module("labkit.cluster").check_environment
        return int(importlib.import_module("labkit.environments").main(chosen, check))
    if chosen.command in ("explain", "study", "slurm"):
        rooms = {
            "explain": "labkit.explain.command",
            "study": "labkit.study.study_run",
            "slurm": "labkit.cluster.slurm.batch",
        }
        return int(importlib.import_module(rooms[chosen.command]).main(chosen))
    recordings = importlib.import_module("labkit.telemetry.commands")
    if chosen.command == "replay":
        return int(recordings.replay(chosen.file, html=chosen.html, show=chosen.html is None))
    program = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
    return int(recordings.record(program, to=chosen.to, every=chosen.every))


def _progress(folder: Path | None) -> int:
    exercises = importlib.import_module("labkit.exercises")
    course = course_folder()
    if folder is None and course and not exercises.attempts.FILE.exists():
        folder = course / "notebooks"
    print(exercises.my_progress(folder or "."))
    return 0


def _lab(extra: Sequence[str]) -> int:
    folder = course_folder()
    if folder is None:
        raise LabError(
            f"The course's notebooks are not in {Path.cwd()} or above it. "
            "Go to the folder that you cloned, where notebooks/ lies, and try again."
        )
    _check_runtime_folder()
    _make_workspace()
    command = [
        sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}",
        "--ServerApp.contents_manager_class=labkit.contents.Contents",
        "--HTMLExporter.preprocessors=labkit.contents.Offline",
        f"--LabApp.app_settings_dir={_SETTINGS}",
        "--LabApp.custom_css=True",
        f"--ServerApp.tornado_settings=static_custom_path={_RULES}",
        f"--LabApp.default_url=/lab/workspaces/{_WORKSPACE}/tree/notebooks/{_FIRST}",
    ]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    # JupyterLab replaces this process, so that Ctrl-C reaches it.
    os.execv(sys.executable, [*command, *extra])


def _make_workspace() -> None:
    """The course has a workspace of its own beside the user's; it opens with the contents."""
    from jupyterlab.commands import get_workspaces_dir
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    manager = WorkspacesManager(get_workspaces_dir())
    if all(one["metadata"]["id"] != _WORKSPACE for one in manager.list_workspaces()):
        with suppress(OSError):
            manager.save(_WORKSPACE, (_SETTINGS / "workspace.json").read_text(encoding="utf-8"))


def _check_runtime_folder() -> None:
    """Without a folder that it can write in, JupyterLab ends in a traceback of two pages."""
    from jupyter_core.paths import jupyter_runtime_dir

    folder = Path(jupyter_runtime_dir())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as fault:
        raise LabError(
            f"JupyterLab cannot write in {folder} ({fault.strerror}). Start it with a home folder "
            "that you can write in, such as: make lab HOME=/tmp/$USER"
        ) from fault


if __name__ == "__main__":
    sys.exit(main())
