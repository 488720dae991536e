"""Pages so small that short indexes have several."""

from __future__ import annotations

import pytest

from penstock.backends.positions import index


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "PAGE_MARKS", 3)
    monkeypatch.setattr(index, "CACHED_PAGES", 2)
