"""A plugin of pytest: the packages that tests can do without cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

from support.needs import PACKAGES


class _Missing:
    """Finder that comes first."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, _Missing())
