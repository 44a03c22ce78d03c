"""The pages of the site that are no notebooks: start, programs, library, hardware, recordings."""

import ast
import inspect
import json
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit import known_hardware
from labkit.kinds import LabError, bytes_text, seconds_text

ABOUT_IT = ("CODE_OF_CONDUCT.md", "SUPPORT.md")
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


def relinked(text: str, page: Path, known: Collection[Path]) -> str:
    """Markdown of a page with links to what the site has; others become the words alone."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        path, *_ = target.partition("#")
        to = Path(os.path.normpath(page.parent / path))
        if "://" in target or not path or to in known:
            return found[0]
        if to.parent == Path("notebooks/programs") or to == Path("notebooks/programs"):
            return f"[{words}](/programs.md{f'#{to.name}' if to.suffix else ''})"
        if to.parent == Path("notebooks/recordings"):
            return f"[{words}](/recordings.md)"
        return words

    return re.sub(r"(?<!!)\[([^\[\]]+)\]\(([^)\s]+)\)", link, text)


def linked(html: str, folder: str = "") -> str:
    """The links of a piece of HTML to notebooks, as those to pages; Sphinx sees only Markdown's."""
    from docutils.nodes import make_id

    def page(found: re.Match[str]) -> str:
        return f'href="{folder}{found[1]}.html{f"#{make_id(found[2])}" if found[2] else ""}"'

    return re.sub(r'href="([\w.-]+)\.ipynb(?:#([^"]*))?"', page, html)


def written(root: Path) -> list[Path]:
    """The files that are pages as they are: the lectures, and what lecturers need."""
    found = [*root.glob("notebooks/*.ipynb"), *(root / "docs").rglob("*.md")]
    found += [*(root / "docs").rglob("*.ipynb"), *(root / name for name in ABOUT_IT)]
    return sorted(one.relative_to(root) for one in found)


def pages(root: Path) -> dict[str, str]:
    """The text of each generated page, by its name."""
    docs = [one.with_suffix("").as_posix() for one in written(root) if one.parts[0] != "notebooks"]
    made = {"index": start(root, docs), "programs": programs(root), "library": library(root)}
    return {**made, "hardware": hardware()}


def start(root: Path, docs: Iterable[str]) -> str:
    """What the course is, its map, and the order of all pages."""
    from labkit.exercises.course import course

    found = course(root / "notebooks")
    unsolved = tuple(replace(one, solved=0, tasks=0) for one in found.lectures)
    shown = replace(found, lectures=unsolved, machine="")
    html = linked(shown._repr_mimebundle_()["text/html"], "notebooks/")
    parts: dict[str, list[str]] = {}
    for one in found.lectures:
        name = f"Part {one.part.replace(',', ' ·')}"
        parts.setdefault(name, []).append(f"{one.title} <notebooks/{Path(one.file).stem}>")
    trees = {**parts, **MORE, "Guides": docs}
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

    def resource(name: str, minutes: int) -> dict[str, Any]:
        known = {"@type": "LearningResource", "name": name, "inLanguage": "en", "license": LICENSE}
        return {**known, "timeRequired": f"PT{minutes}M"}

    each = [
        {**resource(one.title, one.minutes), "url": f"notebooks/{Path(one.file).stem}.html"}
        for one in lectures
    ]
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


def programs(root: Path) -> str:
    """The programs to take home, in full."""
    text = "# Programs\n\nWhole programs without labkit, to take home: each runs by itself.\n\n"
    for path in sorted((root / "notebooks" / "programs").glob("*.py")):
        text += f"## {path.name}\n\n````python\n{path.read_text('utf-8').rstrip()}\n````\n\n"
    return text


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
    given = [
        one.replace(annotation=one.empty)
        for one in inspect.signature(thing).parameters.values()
        if one.name != "self" and not one.name.startswith("_")
    ]
    call = f"{name}{inspect.Signature(given)}"
    if len(call) > LINE:
        call = f"{name}(\n    " + ",\n    ".join(map(str, given)) + "\n)"
    return f"```python\n{call}\n```\n\n"


def _prose(thing: Any) -> str:
    """A docstring, its examples as code."""

    def block(text: str) -> str:
        if not text.startswith(">>>"):
            return SPECIAL.sub(r"\\\g<0>", text)
        return "```pycon\n" + re.sub(r"\s*# doctest:.*", "", text) + "\n```"

    return "".join(f"{block(one)}\n\n" for one in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""))


def hardware() -> str:
    """The registry of known hardware, each number with its source."""
    gpus = [
        (name, bytes_text(one.memory), f"{bytes_text(one.bandwidth)}/s",
         f"{one.flops / 1e12:g} TFLOP/s", f"{one.links} × {one.link}", one.kind)
        for name, one in known_hardware.GPUS.items()
    ]  # fmt: skip
    links = [
        (name, f"{bytes_text(one.bandwidth)}/s",
         seconds_text(one.latency) if one.latency else "", one.about, one.kind)
        for name, one in known_hardware.LINKS.items()
    ]  # fmt: skip
    return (
        "# Known hardware\n\nPublished numbers, each with its source and the day it was read. "
        "FLOP/s are dense and 16-bit with float32 sums; bandwidth is of one direction.\n\n"
        f"## GPUs\n\n{_table(['GPU', 'memory', 'of its memory', '16-bit', 'links', 'kind'], gpus)}"
        f"## Links\n\n{_table(['link', 'bandwidth', 'latency', 'what', 'kind'], links)}"
    )


def _table(head: list[str], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, one))} |\n" for one in lines) + "\n"
