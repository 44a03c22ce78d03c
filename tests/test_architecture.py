"""The floors of the house: who may know whom, and what `import labkit` may cost."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "labkit"
FILES = sorted(HOUSE.rglob("*.py"))

# From the ground up. A room knows the floors below it, and no room on its own floor.
FLOORS = (
    {"arguments", "kinds", "plain", "progress", "shipping", "time_limit"},
    {"views"},  # only kinds below it, so that every room can be drawn
    {"hardware", "datasets", "memory"},
    {"timing", "telemetry", "collectives", "pipelines"},
    {"training", "cluster"},
    {"strategies", "updates"},  # the one step of training, in the ranks of a cluster
    {"cli", "doctor", "doctor_checks", "publish", "exercises"},
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
# Files that are parts of one thing: the ground, and the command line.
GROUND, COMMANDS = FLOORS[0], {"cli", "doctor", "doctor_checks", "publish"}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
HEAVY = {"IPython", "ipywidgets", "jupyter_client", "keras", "matplotlib", "numpy", "tensorflow"}
HEAVY |= {
    "torch",
    "jupyterlab",
    "nbclient",
    "nbformat",
    "psutil",
    "pynvml",
    "greenlet",
    "mpi4py",
    "cloudpickle",
}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    """`labkit.hardware.nvml` is in the room hardware; `labkit` itself is in none."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def only_for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path, *, inside_functions=True):
    """(module, name or None) of each import; names of modules in labkit are modules themselves."""
    stack = [ast.parse(path.read_text(encoding="utf-8"))]
    while stack:
        node = stack.pop()
        if only_for_types(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from from_imports(node)
        elif is_import_by_name(node):
            yield node.args[0].value, None
        if isinstance(node, FUNCTION) and not inside_functions:
            continue
        stack.extend(ast.iter_child_nodes(node))


def from_imports(node):
    for alias in node.names:  # ruff sees to it that no import is relative
        inner = f"{node.module}.{alias.name}"
        yield (inner, None) if inner in MODULES else (node.module, alias.name)


def is_import_by_name(node):
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("import_module")
        and isinstance(node.args[0], ast.Constant)
    )


MODULES = {module_of(path) for path in FILES}
# The front door, labkit itself, knows the names of all rooms.
ROOMS = [path for path in FILES if room_of(module_of(path)) not in ("", "__main__")]
each_file = pytest.mark.parametrize("path", ROOMS, ids=module_of)


def test_every_room_has_its_floor():
    rooms = {room_of(module_of(path)) for path in FILES} - {"", "__main__"}
    assert rooms <= set(FLOOR), "give the new room its floor in FLOORS"


@each_file
def test_a_room_knows_only_the_floors_below(path):
    mine = room_of(module_of(path))
    for module, _ in imports(path):
        other = room_of(module) if module.startswith("labkit.") else mine
        together = {mine, other}
        if other in (mine, "") or together <= GROUND or together <= COMMANDS:
            continue
        assert FLOOR[other] < FLOOR[mine], f"{path.name} imports {module}"


@each_file
def test_a_room_uses_no_private_name_of_another(path):
    mine = room_of(module_of(path))
    for module, name in imports(path):
        if module.startswith("labkit.") and room_of(module) != mine:
            private = [part for part in [*module.split("."), name or ""] if part.startswith("_")]
            assert [part for part in private if not part.endswith("__")] == []


def test_pictures_are_imported_only_when_something_is_drawn():
    for path in FILES:
        if room_of(module_of(path)) != "views":
            known = [module for module, _ in imports(path, inside_functions=False)]
            assert [m for m in known if m.startswith("labkit.views")] == [], path


def test_views_know_nothing_above_the_ground():
    for path in (HOUSE / "views").rglob("*.py"):
        rooms = {room_of(module) for module, _ in imports(path) if module.startswith("labkit.")}
        assert rooms <= {"views", *GROUND}, path


@pytest.mark.parametrize(
    ("library", "door"), [("pynvml", "hardware/nvml.py"), ("psutil", "hardware/host.py")]
)
def test_a_library_of_the_machine_has_one_door(library, door):
    users = {
        path.relative_to(HOUSE).as_posix()
        for path in FILES
        for module, _ in imports(path)
        if module.split(".")[0] == library
    }
    assert users <= {door}


def test_no_module_needs_itself_to_be_loaded():
    graph = {
        module_of(path): {m for m, _ in imports(path, inside_functions=False) if m in MODULES}
        for path in FILES
    }
    done: set[str] = set()

    def visit(module, trail):
        assert module not in trail, " -> ".join([*trail, module])
        if module not in done:
            for needed in sorted(graph[module]):
                visit(needed, [*trail, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])


def loaded_by(statement):
    program = f"import sys; before = set(sys.modules); {statement}\n"
    program += "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_importing_labkit_is_next_to_nothing():
    modules = loaded_by("import labkit")
    assert HEAVY & {module.split(".")[0] for module in modules} == set()
    # Modules and not milliseconds: a busy machine must not decide. Each is about 0.3 ms.
    assert len(modules) < 60, modules


@pytest.mark.parametrize("room", sorted(room for room in FLOOR if (HOUSE / room).exists()))
def test_a_room_can_be_entered_without_what_it_will_use_later(room):
    heavy = HEAVY - {"numpy", "psutil"}
    modules = loaded_by(f"import labkit.{room}")
    assert heavy & {module.split(".")[0] for module in modules} == set()


@pytest.mark.parametrize("module", sorted(GROUND | COMMANDS))
def test_the_ground_and_the_commands_start_at_once(module):
    modules = loaded_by(f"import labkit.{module}")
    assert HEAVY & {module.split(".")[0] for module in modules} == set()
