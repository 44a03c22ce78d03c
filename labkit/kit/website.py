"""`make website`: the course as a web site that opens from a disk, from the saved notebooks.

>>> build(Path("build/website"))                               # doctest: +SKIP

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
from html import escape
from pathlib import Path
from typing import Any

from labkit.contents import MAP
from labkit.kinds import LabError, bytes_text
from labkit.kit import saved_views, website_pages
from labkit.views.embed import with_state
from labkit.views.figure import SHEET, picture_class

ROOT = Path(__file__).resolve().parents[2]
STATIC = Path(__file__).resolve().parent / "website_static"
# What assistive technology misses in the pages of Sphinx and furo.
NAMED = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    '<aside class="sidebar-drawer"': '<aside aria-label="All pages" class="sidebar-drawer"',
    '<aside class="toc-drawer': '<aside aria-label="This page" class="toc-drawer',
    '<div class="math-wrapper': '<div tabindex="0" class="math-wrapper',
    "<pre>": '<pre tabindex="0">',  # it can be scrolled
    '<pre style="overflow': '<pre tabindex="0" style="overflow',
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
    '<script src="searchindex.js">': (
        '<script src="_static/texts.js"></script><script src="searchindex.js">'
    ),
}
# The search shows where a page has the words. It would ask for the page, which a browser refuses
# from a disk, so all texts are in a file. It looks for stems, of which "strategi" is in no text.
TEXTS = """fetch = async (url) => ({ text: () => TEXTS[url.replace("./", "")] });
const excerpt = Search.makeSearchSummary;
Search.makeSearchSummary = (text, stems, ...rest) =>
  excerpt(text, [...stems].map((one) => one.replace(/i$/, "")), ...rest);
const TEXTS = """
SETTINGS = {
    "project": "labkit",
    "html_title": "labkit",
    "html_theme": "furo",
    "extensions": ["myst_nb", "labkit.kit.website"],
    "html_math_renderer": "mathml",
    "html_static_path": ["_static"],
    "html_css_files": ["website.css", SHEET.name],
    "html_copy_source": False,
    "html_permalinks": False,
    "nb_execution_mode": "off",
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 4,
    "myst_heading_slug_func": "labkit.kit.website.anchor",
    "pygments_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "highlight_language": "none",
    "suppress_warnings": ["misc.highlighting_failure"],  # a shell's script in a cell of Python
}


def main() -> int:
    """Build it below `build/`, and a zip of it."""
    out = build(ROOT / "build" / "website")
    packed = Path(shutil.make_archive(str(out.with_name("labkit-site")), "zip", out))
    print(f"{out}/index.html, and {packed.name}: {bytes_text(packed.stat().st_size)}")
    return 0


def build(out: Path) -> Path:
    """Write the whole site into a folder, anew."""
    try:
        from sphinx.application import Sphinx
    except ImportError:
        raise LabError("Sphinx is not installed here: make setup-website, and try again.") from None
    if (out / ".buildinfo").is_file():  # Sphinx has made it
        shutil.rmtree(out)
    with tempfile.TemporaryDirectory(prefix="labkit-website-") as folder:
        source = Path(folder, "source")
        _write_sources(source)
        app = Sphinx(
            source, source, out, Path(folder, "doctrees"), "html", parallel=2,
            status=None, warning=sys.stderr,
        )  # fmt: skip
        app.build(force_all=True)
        if app.statuscode:
            raise LabError("The site has errors: Sphinx names them above.")
    texts: dict[str, str] = {}
    for page in sorted(out.rglob("*.html")):
        text = page.read_text("utf-8")
        for found, named in NAMED.items():
            text = text.replace(found, named)
        page.write_text(text, "utf-8")
        texts[page.relative_to(out).as_posix()] = _text(text)
    (out / "_static" / "texts.js").write_text(
        TEXTS + json.dumps(texts, ensure_ascii=False), "utf-8"
    )
    return out


def _text(page: str) -> str:
    """Returns the words of a page in its sections, as the search reads them."""
    main = re.search(r'<article role="main".*</article>', page, re.DOTALL)
    left_out = r"<(script|style)\b.*?</\1>|<(?!/?section)[^>]*>"
    words = re.sub(left_out, "", main[0] if main else "", flags=re.DOTALL)
    return f'<div role="main">{" ".join(words.split())}</div>'


def setup(app: Any) -> dict[str, bool]:
    """Be an extension of Sphinx: formulas become MathML, without a script."""
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    def formula(writer: Any, node: Any) -> None:
        display = "block" if node.tagname == "math_block" else "inline"
        writer.body.append(convert(node.astext(), display=display))
        raise SkipNode

    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def anchor(heading: str) -> str:
    """Returns the name of a heading in links, as in JupyterLab."""
    return heading.strip().replace(" ", "-")


def _write_sources(source: Path) -> None:
    """Write what Sphinx reads: notebooks, pages of docs/, and generated pages."""
    shutil.copytree(STATIC, source / "_static")
    shutil.copy(SHEET, source / "_static")
    shutil.copytree(ROOT / "images", source / "images")  # Sphinx takes those that a page shows
    _write(source / "conf.py", f"globals().update({SETTINGS!r})")
    known = set(website_pages.written(ROOT))
    for name in known:
        text = (ROOT / name).read_text("utf-8")
        if name.suffix == ".md":
            _write(source / name, website_pages.relinked(text, name, known))
            continue
        notebook, placed = json.loads(text), set[str]()
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = website_pages.relinked("".join(cell["source"]), name, known)
            if cell["metadata"].get("jupyter", {}).get("source_hidden"):
                cell["metadata"].setdefault("tags", []).append("remove-input")
            if "".join(cell["source"]).endswith(MAP):
                cell["outputs"][0]["data"] = {"text/html": website_pages.course_map(ROOT)}
            for output in cell.get("outputs", []):
                _as_html(output, source, placed, "../" * (len(name.parts) - 1))
        _write(source / name, json.dumps(notebook))
    for page, text in website_pages.pages(ROOT).items():
        _write(source / f"{page}.md", text)
    _write(source / "recordings.md", _recordings(source))


def _recordings(source: Path) -> str:
    """Returns the page with the panel of each recording."""
    import labkit

    folder, placed, text = ROOT / "notebooks" / "recordings", set[str](), "# Recordings\n\n"
    for path in sorted(folder.glob("*.jsonl")):
        recording = labkit.replay(path)
        data, metadata = recording._repr_mimebundle_()
        data, metadata = with_state((data, metadata), data.pop("text/html"))
        output: dict[str, Any] = {"data": data, "metadata": metadata}
        _as_html(output, source, placed, "")
        text += f"## {path.name}\n\n**{recording.kind}**\n\n"
        text += f"```{{raw}} html\n{output['data']['text/html']}\n```\n\n"
    return text


def _as_html(output: dict[str, Any], source: Path, placed: set[str], up: str) -> None:
    """Replace an output's formats by HTML. `placed` is the code that its page has already."""
    data = output.get("data", {})
    if "image/png" in data:
        meta = output["metadata"]["image/png"]
        png = base64.b64decode("".join(data["image/png"]))
        file = f"_static/pictures/{hashlib.sha256(png).hexdigest()[:16]}.png"
        _write(source / file, png)
        html = (
            f'<img{picture_class(output["metadata"])} alt="{escape(meta["alt"])}" '
            f'width="{meta["width"]}" src="{up}{file}">'
        )
    elif "text/html" in data:
        html = website_pages.linked("".join(data["text/html"]))
    else:
        return
    if (saved := output.get("metadata", {}).get("labkit")) is not None:
        html = saved_views.placed(saved, html)
        if saved["code"] not in placed:  # once a page; the file is that of all pages
            placed.add(saved["code"])
            script = f"_static/view_{saved['code']}.js"
            _write(source / script, saved_views.script(saved))
            html += f'<script defer src="{up}{script}"></script>'
    output["data"], output["metadata"] = {"text/html": html}, {}


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    sys.exit(main())
