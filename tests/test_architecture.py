"""The architecture: what a room may import, no cycles, small rooms, and a cheap `import labkit`."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "labkit"

# From the ground up. A room imports from the floors below it, and from no room on its own floor.
FLOORS = (
    {
        "arguments",
        "callable_room",
        "centre",
        "kinds",
        "known_hardware",
        "linux",
        "plain",
        "progress",
        "shipping",
        "shown",
        "time_limit",
    },
    {"views"},  # knows no object; rooms import it only where they draw theirs
    {"hardware", "datasets", "memory", "mpi"},
    {
        "choosing",
        "timing",
        "telemetry",
        "collectives",
        "pipelines",
        "environments",
        "profiles",
        "storage",
    },
    {"training", "cluster", "limits"},
    {"strategies", "updates", "kernel"},
    {"exercises", "study", "explain"},
    {"doctor", "publish", "contents", "sections"},
    {"kit"},  # web site, slides, release, grading: nothing in a lecture imports it
    {"cli"},
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
GROUND, COMMANDS = FLOORS[0], {"cli", "doctor", "publish"}

LARGEST_PACKAGE = 20  # modules, __init__.py not counted
A_FILE_A_LECTURE = HOUSE / "exercises" / "lectures"  # questions: as many as there are notebooks

HEAVY = {
    "IPython", "cloudpickle", "greenlet", "ipywidgets", "jupyter_client", "jupyterlab", "keras",
    "matplotlib", "mpi4py", "nbclient", "nbformat", "numpy", "psutil", "pynvml", "tensorflow",
    "torch",
}  # fmt: skip


class Import(NamedTuple):
    """`from module import name`, or `import module`; lazy in a function, or for types only."""

    module: str
    name: str
    lazy: bool
    types: bool


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """`hardware` for labkit.hardware.gpus; "" for labkit itself and for other libraries."""
    parts = module.split(".")
    return parts[1] if parts[0] == "labkit" and len(parts) > 1 else ""


def imports_in(tree: ast.AST, lazy: bool = False, types: bool = False) -> Iterator[Import]:
    """All imports: also those inside functions, of types, and import_module("a.name")."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", lazy, types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):  # ruff forbids relative imports
            yield from (Import(node.module, alias.name, lazy, types) for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield Import(node.args[0].value, "", lazy, types)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        yield from imports_in(node, lazy or inside or only, types or only)


FILES = {module_of(path): path for path in HOUSE.rglob("*.py")}


@cache
def imports() -> dict[str, list[Import]]:
    return {
        module: list(imports_in(ast.parse(path.read_text(encoding="utf-8"))))
        for module, path in FILES.items()
        if module not in ("labkit", "labkit.__main__")  # they know every room
    }


ROOMS = {room_of(module) for module in FILES} - {"", "__main__"}


def target(found: Import) -> str:
    """The module that is imported: `from labkit import kinds` imports labkit.kinds."""
    inner = f"{found.module}.{found.name}"
    return inner if inner in FILES else found.module


def imports_between_rooms() -> Iterator[tuple[str, Import]]:
    for module, found in imports().items():
        for one in found:
            if room_of(target(one)) not in ("", room_of(module)):
                yield module, one


def test_every_room_has_its_floor():
    assert ROOMS - set(FLOOR) == set(), "give the new room its floor in FLOORS"


def test_a_room_imports_only_from_the_floors_below():
    wrong = []
    for module, one in imports_between_rooms():
        mine, other = room_of(module), room_of(target(one))
        together = {mine, other} <= GROUND or {mine, other} <= COMMANDS
        if not together and FLOOR[other] >= FLOOR[mine]:
            wrong.append(f"{module} imports {target(one)}")
    assert wrong == []


@pytest.mark.parametrize("part", ["links", "ranks", "here", "slurm"])
def test_a_part_of_the_cluster_loads_only_parts_below_it(part):
    """Ranks need links; this machine and Slurm need ranks; what needs a `Cluster` is above all."""
    below = {"links": (), "ranks": ("links",), "here": ("links", "ranks"), "slurm": ("ranks",)}
    mine, allowed = f"labkit.cluster.{part}", {part, *below[part]}
    loaded = {
        target(one)
        for module, found in imports().items()
        if module.startswith(mine)
        for one in found
        if room_of(target(one)) == "cluster" and not one.lazy
    }
    assert {module for module in loaded if module.split(".")[2] not in allowed} == set()


def test_no_module_imports_itself_through_others():
    # A picture names the type of what it draws, which draws itself by the picture.
    graph = {
        module: {target(one) for one in found if not one.types} & set(imports())
        for module, found in imports().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        # graphlib lists each module before the one that imports it.
        pytest.fail(" imports ".join(reversed(cycle.args[1])))


def test_no_two_modules_and_no_two_public_classes_have_one_name():
    """A traceback, a search and an open tab show the name alone."""
    names = Counter(path.name for path in FILES.values() if path.name != "__init__.py")
    names.update(
        node.name
        for path in FILES.values()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_a_package_can_be_read_in_one_sitting():
    sizes = Counter(path.parent for path in FILES.values() if path.name != "__init__.py")
    del sizes[A_FILE_A_LECTURE]
    assert {folder: size for folder, size in sizes.items() if size > LARGEST_PACKAGE} == {}


def test_a_room_uses_no_private_name_of_another():
    def is_private(part):
        return part.startswith("_") and not part.endswith("__")

    wrong = [
        f"{module} imports {one.module}.{one.name}"
        for module, one in imports_between_rooms()
        if any(map(is_private, [*one.module.split("."), one.name]))
    ]
    assert wrong == []


def test_views_are_imported_only_when_something_is_drawn():
    def loads(module, others):
        return {target(one) for one in imports()[module] if not one.lazy} & others

    views = {module for module in imports() if room_of(module) == "views"}
    draw = {module for module in imports() if loads(module, views)} - views
    others = {module for module in imports() if room_of(module) != "kit"} - draw - views
    assert {module: loads(module, draw) for module in others if loads(module, draw)} == {}


@pytest.mark.parametrize("library", ["pynvml", "psutil"])
def test_one_module_of_hardware_reads_the_machine(library):
    users = [
        module
        for module, found in imports().items()
        if any(one.module.split(".")[0] == library for one in found)
        and module != "labkit.kit.sandbox"  # it watches the processes that it started
    ]
    assert len(users) <= 1, users
    assert {room_of(module) for module in users} <= {"hardware"}


def loaded_by(*modules):
    """Per module what its import has loaded, of a fresh Python that imports one after the other."""
    program = (
        "import importlib, json, sys\n"
        "loaded = {}\n"
        "for name in sys.argv[1:]:\n"
        "    before = set(sys.modules)\n"
        "    importlib.import_module(name)\n"
        "    loaded[name] = sorted(set(sys.modules) - before)\n"
        "print(json.dumps(loaded))\n"
    )
    command = [sys.executable, "-c", program, *modules]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def heavy(loaded, allowed=frozenset()):
    """Per module the heavy libraries among what it has loaded."""
    found = {m: HEAVY & {name.split(".")[0] for name in names} for m, names in loaded.items()}
    return {
        module: libraries - allowed for module, libraries in found.items() if libraries - allowed
    }


def test_import_labkit_costs_next_to_nothing():
    loaded = loaded_by("labkit")
    assert heavy(loaded) == {}
    # Modules instead of milliseconds, which depend on the machine; a module takes about 0.3 ms.
    assert len(loaded["labkit"]) < 60, loaded


def test_a_room_loads_heavy_libraries_only_when_they_are_used():
    """The ground and the commands load none: they start at once."""
    light = [f"labkit.{room}" for room in sorted(ROOMS & (GROUND | COMMANDS))]
    rooms = [f"labkit.{room}" for room in sorted(ROOMS - GROUND - COMMANDS - {"contents"})]
    loaded = loaded_by(*light, *rooms)  # contents is loaded by Jupyter's server alone
    assert heavy({module: loaded[module] for module in light}) == {}
    assert heavy(loaded, {"numpy", "psutil"}) == {}


def test_each_of_the_six_files_to_read_first_is_read_in_one_sitting():
    guide = (HOUSE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    first = re.findall(r"^\d\. \[(labkit/\S+)\]", guide, re.MULTILINE)
    assert len(first) == 6
    for name in first:
        assert len((HOUSE.parent / name).read_text(encoding="utf-8").splitlines()) <= 300, name
