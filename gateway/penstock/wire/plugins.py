"""Plug-ins: the objects by which installed distributions add protocols.

Each layer has one entry-point group and one type of plug-in: `penstock.codecs`, `penstock.captures` and
`penstock.protocols`. The built-in protocols are registered in the same way as those of other distributions, and no
layer has another list of protocols. The name of an entry point is the protocol's name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

__all__ = ["installed", "installed_names"]

P = TypeVar("P")


def installed(group: str, kind: type[P], *, only: str | None = None) -> dict[str, P]:
    """Return all installed plug-ins of an entry-point group by name, in alphabetical order; `kind` is their type.
    `only`: the name of a single one, without loading others.

    Raises TypeError, naming the entry point, if one is not of that type, and ValueError if two installed distributions
    use one name.
    """
    plugins: dict[str, P] = {}
    for entry in _entries(group):
        if only not in (None, entry.name):
            continue
        if entry.name in plugins:
            raise ValueError(f"two installed distributions register {entry.name!r} in {group}")
        plugin = entry.load()
        if not isinstance(plugin, kind):
            raise TypeError(f"entry point {entry.name} = {entry.value} in {group} is not a {kind.__name__}")
        plugins[entry.name] = plugin
    return plugins


def installed_names(group: str) -> list[str]:
    """Return the names of all installed plug-ins of an entry-point group in alphabetical order, without loading any."""
    return [entry.name for entry in _entries(group)]


@cache  # reading the metadata of all installed distributions takes milliseconds
def _entries(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda entry: entry.name)
