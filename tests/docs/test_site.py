"""The documentation builds as one site without a warning, and the site needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from pages import ROOT

# Attributes by which a page loads something, tag by tag; the href of an <a> only leads somewhere.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
OUTSIDE = re.compile(r"(https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


class Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found |= {value for name, value in attrs if LOADS.get(tag) == name and value}


def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [address for address in loads.found if OUTSIDE.match(address)] == [], page
        missing = [a for a in loads.found if not (page.parent / re.split("[?#]", a)[0]).exists()]
        assert missing == [] or page.name == "404.html", page  # which is served from anywhere


def test_styles_load_nothing_from_elsewhere(site):
    sheets = {sheet: sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css")}
    assert sheets and any("url(" in text for text in sheets.values())
    for sheet, text in sheets.items():
        addresses = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", text)
        assert [address for address in addresses if OUTSIDE.match(address)] == [], sheet


def test_the_site_has_every_page_and_the_search_index(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    index = {page.with_name("index.html") if page.name == "README.html" else page for page in pages}
    assert {path for path in index if not (site / path).exists()} == set()
    assert (site / "search" / "search_index.js").stat().st_size > 100_000
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_first_page_begins_as_readme_does(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    claim = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[2]
    assert claim in page and 'src="images/demo.png"' in page and "## Install" not in page


def test_links_out_of_the_site_are_names_of_files(site):
    assert "<code>examples/own_loop.py</code>" in (site / "cluster.html").read_text(encoding="utf-8")


def test_a_page_of_the_reference_is_made_from_docstrings(site):
    text = re.sub(r"<[^>]+>", "", (site / "reference" / "runs.html").read_text(encoding="utf-8"))
    assert "gm.simulate" in text and "any setting of gossamer train" in text
