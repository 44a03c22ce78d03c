"""The course as a site, opened from the disk in Chromium that reaches no network.

`make test` builds two lectures and the pages around them, `make stress` all of it.
"""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image

from labkit.kit import website, website_pages
from labkit.kit.release import NOTEBOOKS

pytest.importorskip("myst_nb", reason="Sphinx is not installed here: make setup-website")

ROOM = {"width": 1366, "height": 768}
SERIOUS = ("serious", "critical")
TWO = "22_ring_all_reduce", "40_pipelines"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    every = website_pages.written
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            website_pages, "written", lambda root: [p for p in every(root) if p.stem in TWO]
        )
        return website.build(tmp_path_factory.mktemp("two") / "website")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return website.build(tmp_path_factory.mktemp("whole") / "website")


@pytest.fixture
def page(browser):
    """A page; what it complains of, or wants from elsewhere, fails the test."""
    faults = []
    context = browser.new_context(viewport=ROOM)

    def file_only(route):
        if not route.request.url.startswith(("file:", "data:", "blob:")):
            faults.append(f"asks for {route.request.url}")
            return route.abort()
        return route.continue_()

    context.route("**/*", file_only)
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("requestfailed", lambda request: faults.append(f"failed: {request.url}"))
    page.on("console", lambda one: one.type == "error" and faults.append(one.text))
    yield page
    context.close()
    assert faults == []


def pages(folder):
    return sorted(one for one in folder.rglob("*.html") if "_static" not in one.parts)


def views_are_drawn(page):
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-labkit]')]"
        ".every((one) => one.shadowRoot?.querySelector('section'))"
    )


@pytest.mark.stress
def test_every_page_has_its_text_its_formulas_and_its_views(whole, page):
    shown = pages(whole)
    assert len(shown) > 45
    for file in shown:
        page.goto(file.as_uri())
        views_are_drawn(page)
        seen = page.evaluate(
            """() => ({
              words: document.querySelector("article").innerText.split(/\\s+/).length,
              broken: [...document.images].some((one) => one.complete && !one.naturalWidth),
              raw: /\\\\frac|\\\\cdot|\\$\\$/.test(document.querySelector("article").innerText),
              wide: document.documentElement.scrollWidth > innerWidth,
            })"""
        )
        assert seen.pop("words") > 5 or file.stem in ("search", "genindex"), file
        assert not any(seen.values()), (file, seen)


def test_formulas_are_mathml(folder):
    assert "<math" in (folder / "notebooks/40_pipelines.html").read_text("utf-8")


def test_the_ring_plays(folder, page):
    page.goto((folder / "notebooks/22_ring_all_reduce.html").as_uri())
    views_are_drawn(page)
    player = page.locator(".labkit-player").first
    before = player.locator("section").inner_text()
    player.get_by_role("button", name="one step on").click()
    page.wait_for_function(
        "(text) => document.querySelector('.labkit-player').shadowRoot"
        ".querySelector('section').innerText !== text",
        arg=before,
    )


def test_a_search_finds_the_page_and_its_link_opens_it(folder, page):
    page.goto((folder / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").first.fill("micro-batch")
    page.keyboard.press("Enter")
    page.locator("#search-results").get_by_role("link", name="40 ·").first.click()
    page.wait_for_url("**/40_pipelines.html*")


@pytest.mark.parametrize(
    ("words", "where", "around"),
    [
        ("rendezvous", "40 ·", "the data do not move"),  # in the middle of a lecture
        ("MirroredStrategy", "Distributed deep-learning", "MirroredStrategy"),  # between two tags
    ],
)
def test_a_search_shows_the_text_in_which_the_words_are(folder, page, words, where, around):
    page.goto(f"{(folder / 'search.html').as_uri()}?q={words}")
    found = page.locator("#search-results li").filter(has_text=where).first
    assert around in found.locator(".context").inner_text()


def test_a_picture_has_the_ground_of_the_page_and_paper_is_white(folder, page):
    page.emulate_media(color_scheme="dark")
    page.goto((folder / "notebooks/40_pipelines.html").as_uri())
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = tuple(map(int, re.findall(r"\d+", ground)))
    assert max(dark) < 40

    def corner():
        shot = page.locator("article img.labkit-picture").first.screenshot()
        return Image.open(io.BytesIO(shot)).convert("RGB").getpixel((9, 9))

    assert corner() == dark
    page.emulate_media(color_scheme="dark", media="print")
    assert corner() == (255, 255, 255)


def test_the_views_follow_the_theme(folder, page):
    page.emulate_media(color_scheme="light")
    page.goto((folder / "recordings.html").as_uri())
    views_are_drawn(page)
    theme = page.locator(".labkit-panel section").first
    assert theme.get_attribute("data-theme") == "light"
    while page.evaluate("document.body.dataset.theme") != "dark":
        page.locator(".theme-toggle:visible").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.labkit-panel')]"
        ".every((one) => one.shadowRoot.querySelector('section').dataset.theme === 'dark')"
    )


class Links(HTMLParser):
    """Where a page leads, and what can be reached in it."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.names = [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.targets += [known[name] for name in ("href", "src") if known.get(name)]
        self.names |= {known[name] for name in ("id", "name") if known.get(name)}


@pytest.mark.stress
def test_every_internal_link_leads_somewhere(whole):
    read = {one: Links(one.read_text("utf-8")) for one in pages(whole)}
    missing = []
    for file, links in read.items():
        for target in links.targets:
            there = urlsplit(target)
            if there.scheme:
                continue
            to = (file.parent / unquote(there.path)).resolve() if there.path else file
            anchor = unquote(there.fragment)
            if not to.is_file() or (to in read and anchor not in read[to].names):
                missing.append((file.name, target))
    assert missing == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(folder, page, theme):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=theme)
    found = []
    for name in ("index", "search", "recordings", "notebooks/40_pipelines"):
        page.goto((folder / f"{name}.html").as_uri())
        views_are_drawn(page)
        rules = {"runOnly": ["color-contrast"]} if theme == "dark" else {}
        options = {"resultTypes": ["violations"], "preload": False, **rules}
        for one in Axe().run(page, options=options).response["violations"]:
            nodes = [node["html"][:100] for node in one["nodes"][:3]]
            found += [(name, one["id"], nodes)] * (one["impact"] in SERIOUS)
    assert found == []


def test_what_is_shared_is_stored_once(folder):
    code = [one.name for one in (folder / "_static").glob("view_*.js")]
    assert {"view_player.js", "view_panel.js", "view_pipelines.js"} <= set(code)
    lecture = (folder / "notebooks/22_ring_all_reduce.html").read_text("utf-8")
    assert lecture.count("view_player.js") == 1
    assert "DecompressionStream" not in lecture


def test_search_engines_learn_what_the_course_is(folder):
    text = (folder / "index.html").read_text("utf-8")
    known = json.loads(re.search(r'ld\+json">(.*?)</script>', text)[1])
    assert {"name", "description", "keywords", "license", "inLanguage"} <= known.keys()
    lectures = {f"notebooks/{one.stem}.html" for one in NOTEBOOKS.glob("[0-9]*.ipynb")}
    assert {one["url"] for one in known["hasPart"]} == lectures
