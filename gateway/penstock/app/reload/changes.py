"""Differences between two configurations, and which of them need a restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from penstock.app.config import Config
from penstock.core.errors import CannotReload
from penstock.protocols.plugin import listener_kinds

__all__ = ["changes", "check_changes"]

RELOADABLE: Final = (
    *("access", "backs", "drain", "faults", "identities", "limits", "listeners", "log.level", "management", "reload"),
    *("routes", "recorder.redact", "store.basins", "store.streams"),
)
"""Keys that may change at a reload; all others are fixed at the start."""


def changes(now: Config, new: Config) -> list[str]:
    """Return the keys that differ, as `drain.deadline_seconds`; for named tables the keys within them too, as
    `routes.orders`."""
    return sorted(_differing("", msgspec.to_builtins(now), msgspec.to_builtins(new)))


def check_changes(now: Config, new: Config) -> None:
    """Raise CannotReload, naming each key, for changes that need a restart."""
    fixed = [key for key in changes(now, new) if _names_streams(key) or not _begins_with(key, RELOADABLE)]
    if not fixed and now.listeners.envelopes != new.listeners.envelopes:
        fixed = ["listeners (the choice of envelopes)"]
    if fixed:
        raise CannotReload(f"{', '.join(fixed)}: cannot change while the gateway runs; restart it to apply this")


def _begins_with(key: str, prefixes: tuple[str, ...]) -> bool:
    return any(key == prefix or key.startswith((prefix + ".", prefix + " ")) for prefix in prefixes)


def _names_streams(key: str) -> bool:
    """Return whether a key of a listener determines the names of streams."""
    table, *path = key.split(".")
    kind = listener_kinds().get(path[0]) if table == "listeners" and path else None
    return kind is not None and path[-1] in kind.fixed_keys


def _differing(path: str, now: Any, new: Any) -> Iterator[str]:
    if now == new:
        return
    before, after = _by_name(now), _by_name(new)
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield path
        return
    for key in {**before, **after}:
        inner = ".".join(part for part in (path, key) if part)
        if key in before and key in after:
            yield from _differing(inner, before[key], after[key])
        else:
            yield inner
    if before == after:  # arrays of the same tables in another order
        yield f"{path} (order)"


def _by_name(value: Any) -> Any:
    """Return an array of tables as a dict by name; merge a table without a name into it. Return any other value as it
    is."""
    if not (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(entry, dict) and "name" in entry for entry in value)
    ):
        return value
    nameless = [entry for entry in value if entry["name"] is None]
    named = {entry["name"]: entry for entry in value if entry["name"] is not None}
    return {**(nameless[0] if nameless else {}), **named}
