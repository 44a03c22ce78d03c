"""The pages of the site that are no notebooks: start, programs, library, hardware, recordings."""

import ast
import inspect
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit import known_hardware
from labkit.kinds import LabError, bytes_text

LICENSE = "https://creativecommons.org/licenses/by/4.0/"
PROFILE = "https://bioschemas.org/profiles/TrainingMaterial/1.0-RELEASE"
ABOUT = (
    "A JupyterLab course on distributed deep-learning training: data, tensor and pipeline "
    "parallelism, collectives, clusters, and the frameworks of today."
)
MORE = {
    "More": ("notebooks/check_yourself", "notebooks/capstone", "notebooks/glossary"),
    "Reference": ("programs", "library", "hardware", "recordings"),
}
LINE = 88  # letters of code that a page has room for
SPECIAL = re.compile(r"([*_<>\[\]$#|])(?=[^`]*(?:`[^`]*`[^`]*)*$)")


def link(target: str) -> str:
    """Where a link of a notebook or of docs/ leads on the site."""
    if "://" in target:
        return target
    if found := re.match(r"(?:\.\./)*programs(?:/([\w.]+))?$", target):
        return f"/programs.md{f'#{found[1]}' if found[1] and '.' in found[1] else ''}"
    if re.match(r"(\.\./)?(notebooks/)?recordings/", target):
        return "/recordings.md"
    return target


def pages(root: Path) -> dict[str, str]:
    """The text of each page, by its name."""
    docs = sorted(one.relative_to(root).with_suffix("") for one in (root / "docs").rglob("*.md"))
    return {
        "index": start(root, [one.as_posix() for one in docs]),
        "programs": programs(root),
        "library": library(root),
        "hardware": hardware(),
    }


# ---- the start page


def start(root: Path, docs: Iterable[str]) -> str:
    """What the course is, its map, and the order of all pages."""
    os.environ["LABKIT_PICTURES"] = "still"  # nobody's progress, no machine
    from labkit.exercises.course import course

    found = course(root / "notebooks")
    shown = replace(found, lectures=tuple(replace(one, tasks=0) for one in found.lectures))
    html = re.sub(
        r'href="([\w.-]+)\.ipynb',
        r'href="notebooks/\1.html',
        shown._repr_mimebundle_()["text/html"],
    )
    parts: dict[str, list[str]] = {}
    for one in found.lectures:
        name = f"Part {one.part.replace(',', ' ·')}"
        parts.setdefault(name, []).append(f"{one.title} <notebooks/{Path(one.file).stem}>")
    trees = {**parts, **MORE, "For lecturers": docs}
    order = "\n\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{chr(10).join(names)}\n```"
        for caption, names in trees.items()
    )
    meta = json.dumps(_metadata(found.lectures)).replace("</", "<\\/")
    return (
        f"# Distributed deep-learning training\n\n{ABOUT} Every page here plays without a kernel "
        "and without a network; to run the cells, get the course and type `make lab`.\n\n"
        f"```{{raw}} html\n{html}\n"
        f'<script type="application/ld+json">{meta}</script>\n```\n\n{order}\n'
    )


def _metadata(lectures: Iterable[Any]) -> dict[str, Any]:
    """The course as a learning resource, for search engines (Bioschemas, TrainingMaterial)."""

    def resource(name: str, minutes: int, **more: Any) -> dict[str, Any]:
        known = {"@type": "LearningResource", "name": name, "inLanguage": "en", "license": LICENSE}
        return {**known, "timeRequired": f"PT{minutes}M", **more}

    each = [resource(one.title, one.minutes, url=f"notebooks/{Path(one.file).stem}.html")
            for one in lectures]  # fmt: skip
    return {
        "@context": "https://schema.org",
        "http://purl.org/dc/terms/conformsTo": {"@type": "CreativeWork", "@id": PROFILE},
        **resource("labkit: distributed deep-learning training", sum(o.minutes for o in lectures)),
        "description": ABOUT,
        "keywords": "distributed training, deep learning, collectives, TensorFlow, PyTorch, MPI",
        "learningResourceType": ["Jupyter notebook", "tutorial"],
        "educationalLevel": "graduate",
        "hasPart": each,
    }


# ---- programs


def programs(root: Path) -> str:
    """The programs to take home, in full."""
    text = "# Programs\n\nWhole programs without labkit, to take home: each runs by itself.\n\n"
    for path in sorted((root / "notebooks" / "programs").glob("*.py")):
        text += f"## {path.name}\n\n````python\n{path.read_text('utf-8').rstrip()}\n````\n\n"
    return text


# ---- the library


def library(root: Path) -> str:
    """What the lectures use of labkit, from the docstrings."""
    used: dict[str, set[str]] = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for name in _names(path):
            used.setdefault(name, set()).add(path.stem)
    text, last = "# The library\n\nWhat the lectures use of labkit, and where.\n\n", ""
    for name, thing, where in _things(used):
        room = name.rpartition(".")[0]
        text += f"## {room}\n\n" if room != last else ""
        text += _entry(name, thing, sorted(where))
        last = room
    return text


def _names(path: Path) -> set[str]:
    """The dotted names of labkit in the code of a notebook."""
    known, found = {"labkit": "labkit"}, set()
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith(("%", "!")):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit"):
                names = {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
                known |= names
                found |= set(names.values())
            elif isinstance(node, ast.Attribute):
                whole = ast.unparse(node)
                first, _, rest = whole.partition(".")
                if re.fullmatch(r"[\w.]+", whole) and first in known:
                    found.add(f"{known[first]}.{rest}")
    return found


def _things(used: dict[str, set[str]]) -> list[tuple[str, Any, set[str]]]:
    """Functions and classes among these names, each once, under the shortest; with their users."""
    found: dict[int, tuple[str, Any, set[str]]] = {}
    for name in sorted(used, key=lambda one: (one.count("."), one)):
        thing, path = __import__("labkit"), ["labkit"]
        for part in name.split(".")[1:]:
            if not isinstance(thing, ModuleType) or not hasattr(thing, part):
                break
            thing = getattr(thing, part)
            path.append(part)
        if callable(thing) and inspect.getdoc(thing):
            found.setdefault(id(thing), (".".join(path), thing, set()))[2].update(used[name])
    return sorted(found.values(), key=lambda one: (one[0].rpartition(".")[0], one[0].lower()))


def _entry(name: str, thing: Any, where: list[str]) -> str:
    called = type(thing).__call__ if isinstance(thing, ModuleType) else thing
    links = " · ".join(f"[{one.split('_')[0]}](notebooks/{one}.ipynb)" for one in where)
    text = f"### {name}\n\n{_signature(name, called)}Used in {links}\n\n{_prose(called)}"
    if isinstance(thing, type):
        for public, member in vars(thing).items():
            call = getattr(member, "fget", member)
            if not public.startswith("_") and inspect.isfunction(call) and call.__doc__:
                text += f"{_signature(f'.{public}', member)}{_prose(call)}"
    return text


def _signature(name: str, thing: Any) -> str:
    if isinstance(thing, property) or thing is LabError:
        return f"```python\n{name}\n```\n\n"
    sign = inspect.signature(thing)
    given = [one.replace(annotation=one.empty) for one in sign.parameters.values()]
    given = [one for one in given if one.name not in ("self", "room") and one.name[0] != "_"]
    call = f"{name}{inspect.Signature(given)}"
    if len(call) > LINE:
        call = f"{name}(\n    " + ",\n    ".join(map(str, given)) + "\n)"
    return f"```python\n{call}\n```\n\n"


def _prose(thing: Any) -> str:
    """A docstring, its examples as code."""
    blocks = re.split(r"\n\s*\n", inspect.getdoc(thing) or "")
    text = ""
    for block in blocks:
        if block.lstrip().startswith(">>>"):
            lines = re.sub(r"\s*# doctest:.*", "", inspect.cleandoc(block))
            text += f"```pycon\n{lines}\n```\n\n"
        else:
            text += f"{SPECIAL.sub(chr(92) + chr(92) + '1', block)}\n\n"
    return text


# ---- hardware


def hardware() -> str:
    """The registry of known hardware, each number with its source."""
    gpus = [
        [name, bytes_text(one.memory), f"{bytes_text(one.bandwidth)}/s",
         f"{one.flops / 1e12:g} TFLOP/s", f"{one.links} × {one.link}", str(one.kind)]
        for name, one in known_hardware.GPUS.items()
    ]  # fmt: skip
    links = [
        [name, f"{bytes_text(one.bandwidth)}/s",
         f"{one.latency * 1e6:.3g} µs" if one.latency else "", one.about, str(one.kind)]
        for name, one in known_hardware.LINKS.items()
    ]  # fmt: skip
    machines = [
        [name, f"{one.gpus} × {one.gpu}" if one.gpu else f"{one.gpus} GPUs",
         ", ".join(sorted({edge.link for edge in one.edges if edge.link})), str(one.kind)]
        for name, one in known_hardware.MACHINES.items()
    ]  # fmt: skip
    return (
        "# Known hardware\n\nPublished numbers, each with its source and the day it was read. "
        "FLOP/s are dense and 16-bit with float32 sums; bandwidth is of one direction.\n\n"
        f"## GPUs\n\n{_table(['GPU', 'memory', 'of its memory', '16-bit', 'links', 'kind'], gpus)}"
        f"## Links\n\n{_table(['link', 'bandwidth', 'latency', 'what', 'kind'], links)}"
        f"## Machines\n\n{_table(['machine', 'devices', 'links', 'kind'], machines)}"
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(one)} |\n" for one in lines) + "\n"
