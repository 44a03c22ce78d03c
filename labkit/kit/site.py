"""`make site`: the course as a web site that opens from a disk, from the saved notebooks.

>>> build(Path("build/site"))                               # doctest: +SKIP

Nothing is run. The notebooks are copied with their outputs as HTML: pictures and the code of views
become files that all pages share, and views play (`labkit.kit.saved_views`). Sphinx does the rest:
pages, search, themes. No page loads anything from elsewhere.
"""

import base64
import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from labkit.kinds import LabError, bytes_text
from labkit.kit import saved_views, site_pages

ROOT = Path(__file__).resolve().parents[2]
STATIC = Path(__file__).resolve().parent / "site_static"
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
SHOWN = ("text/html", "image/png")
SETTINGS = {
    "project": "labkit",
    "html_title": "labkit",
    "html_theme": "furo",
    "extensions": ["myst_nb", "labkit.kit.site"],
    "html_math_renderer": "mathml",
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "html_copy_source": False,
    "html_show_sphinx": False,
    "html_permalinks": False,
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 4,
    "myst_heading_slug_func": "labkit.kit.site.anchor",
    "pygments_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "highlight_language": "none",
    "language": "en",
    "suppress_warnings": ["misc.highlighting_failure"],  # a shell's script in a cell of Python
}


def main() -> int:
    """Build it below `build/`, and a zip of it."""
    out = build(ROOT / "build" / "site")
    packed = Path(shutil.make_archive(str(out.with_name("labkit-site")), "zip", out))
    print(f"{out}/index.html, and {packed.name}: {bytes_text(packed.stat().st_size)}")
    return 0


def build(out: Path) -> Path:
    """Write the whole site into a folder, anew."""
    try:
        from sphinx.application import Sphinx
    except ImportError:
        raise LabError("Sphinx is not installed here: make setup-site, and try again.") from None
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="labkit-site-") as folder:
        source = Path(folder, "source")
        _write_sources(source)
        app = Sphinx(
            source, source, out, Path(folder, "doctrees"), "html", parallel=2,
            status=None, warning=sys.stderr,
        )  # fmt: skip
        app.build(force_all=True)
        if app.statuscode:
            raise LabError("The site has errors: Sphinx names them above.")
    return out


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx asks of an extension: formulas as MathML, without a script."""
    from latex2mathml.converter import convert

    def inline(writer: Any, node: Any) -> None:
        writer.body.append(convert(node.astext()))
        raise _skip()

    def block(writer: Any, node: Any) -> None:
        writer.body.append(f"<p>{convert(node.astext(), display='block')}</p>")
        raise _skip()

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()  # type: ignore[no-any-return]


def anchor(heading: str) -> str:
    """The name of a heading in links, as JupyterLab has it."""
    return heading.strip().replace(" ", "-")


def _write_sources(source: Path) -> None:
    """What Sphinx reads: notebooks, the pages of docs/, and those that are generated."""
    shutil.copytree(STATIC, source / "_static")
    _write(source / "conf.py", f"globals().update({SETTINGS!r})")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text("utf-8"))
        placed: set[str] = set()
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                text = LINK.sub(lambda found: site_pages.link(found[0]), "".join(cell["source"]))
                cell["source"] = text
            for output in cell.get("outputs", []):
                _as_html(output, source, placed)
        _write(source / "notebooks" / path.name, json.dumps(notebook))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = LINK.sub(lambda found: site_pages.link(found[0]), path.read_text("utf-8"))
        _write(source / "docs" / path.relative_to(ROOT / "docs"), text)
    for name, text in site_pages.pages(ROOT).items():
        _write(source / f"{name}.md", text)
    _write(source / "recordings.md", _recordings(source))


def _recordings(source: Path) -> str:
    """Each recording as the panel of it."""
    import labkit

    folder, placed, text = ROOT / "notebooks" / "recordings", set[str](), "# Recordings\n\n"
    for path in sorted(folder.glob("*.jsonl")):
        data, metadata = labkit.replay(path)._repr_mimebundle_()
        output = {"data": data, "metadata": metadata}
        _as_html(output, source, placed)
        html = output["data"]["text/html"].replace('="../', '="')
        text += f"## {path.name}\n\n{data['text/plain'].splitlines()[0]}\n\n"
        text += f"```{{raw}} html\n{html}\n```\n\n"
    return text


def _as_html(output: dict[str, Any], source: Path, placed: set[str]) -> None:
    """One piece of HTML in place of an output's formats; `placed` is the code this page has."""
    data = output.get("data", {})
    if "image/png" in data:
        meta = output["metadata"]["image/png"]
        file = _stored(source, base64.b64decode("".join(data["image/png"])))
        html = f'<img alt="{escape(meta["alt"])}" width="{meta["width"]}" src="{file}">'
        html = saved_views.placed(output, html) or html
        if (saved := output["metadata"].get("labkit")) is not None:
            html += code(saved, source, placed)
    elif "text/html" in data:
        html = re.sub(r'(href="[\w.-]+)\.ipynb', r"\1.html", "".join(data["text/html"]))
    else:
        return
    output["data"], output["metadata"] = {"text/html": html}, {}


def code(saved: Mapping[str, Any], source: Path, placed: set[str]) -> str:
    """The script of a view, once a page: a file that the pages share."""
    name = str(saved["code"])
    if name in placed:
        return ""
    placed.add(name)
    _write(source / "_static" / f"view_{name}.js", saved_views.script(saved))
    return f'<script defer src="../_static/view_{name}.js"></script>'


def _stored(source: Path, png: bytes) -> str:
    name = f"_static/pictures/{hashlib.sha256(png).hexdigest()[:16]}.png"
    _write(source / name, png)
    return f"../{name}"


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    sys.exit(main())
