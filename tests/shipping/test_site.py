"""The site of docs/, built as `make docs` does: no link is broken, and nothing comes from the network."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from support.shipping import ROOT

DOCS: Final = ROOT / "docs"


class Loaded(HTMLParser):
    """Collects what a page has its browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source") or (tag == "link" and given.get("rel") != "canonical"):
            self.places += [value for name in ("src", "href") if (value := given.get(name))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command of the Makefile."""
    pytest.importorskip("sphinx", reason="`pip install --group docs`")
    place = tmp_path_factory.mktemp("site")
    (line,) = re.findall(r"^\t\$\(BIN\)/python (-m sphinx .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--fail-on-warning" in line
    words = shlex.split(line.replace("$(VENV)/doctrees", str(place / "doctrees")).replace("dist/site", str(place)))
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return place


@pytest.mark.slow
def test_every_page_is_there(site: Path) -> None:
    """Sphinx itself complains about pages that no navigation leads to."""
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert sorted(page for page in pages if not (site / page).is_file()) == []


@pytest.mark.slow
def test_nothing_comes_from_the_network(site: Path) -> None:
    foreign = []
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        foreign += [f"{page.name}: {place}" for place in loaded.places if re.match(r"(\w+:)?//", place)]
    for sheet in site.rglob("*.css"):
        foreign += re.findall(r"url\(['\"]?(?:https?:)?//[^)]*|@import[^;]*", sheet.read_text(encoding="utf-8"))
    assert not foreign, "\n".join(foreign)


@pytest.mark.slow
def test_it_is_searched_offline_and_has_a_dark_side(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(") and "fsync" in index
    assert "prefers-color-scheme" in "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_its_task(page: Path) -> None:
    """A title and a paragraph of text; records of decisions begin with their status."""
    title, _, rest = page.read_text(encoding="utf-8").partition("\n\n")
    assert re.fullmatch(r"# .+", title)
    first = rest.partition("\n\n")[0]
    if page.parent.name == "adr" and page.name != "index.md":
        assert re.match(r"Status: (accepted|superseded by)", first)
    else:
        assert re.match(r"[A-Z]\w*[ ,]", first), first
        assert not re.match(r"(This page|The (page|tests)|It|Generated)\b", first), "begin with the task"
