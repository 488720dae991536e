"""Names of groups and of transactions, which clients with a prefix have for themselves.

The prefix of an access token comes before the names of its client's streams (`Grant.prefix`). Clients with different
prefixes do not see each other's streams, so their groups and transactional ids are not the same either, whatever they
call them. They are kept by a key that has the prefix; without one the key is the name.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.core.identity import CLIENT, Client

__all__ = ["key_of", "name_of", "viewer"]

_MARK: Final = "\0"
"""It comes first in keys that are no names, and is in no prefix."""


def key_of(name: str) -> str:
    """Return the key of the current client's group, or transactional id, of this name. No two clients with different
    prefixes have the same."""
    grant = CLIENT.get().grant
    prefix = "" if grant is None else grant.prefix
    return f"{_MARK}{prefix}{_MARK}{name}" if prefix or name.startswith(_MARK) else name


def name_of(key: str) -> str | None:
    """Return how the current client names what has this key; None if it belongs to clients with another prefix."""
    own = key_of("")
    if own:
        return key.removeprefix(own) if key.startswith(own) else None
    return None if key.startswith(_MARK) else key


def viewer() -> Client:
    """Return what the streams that the current client sees depend on: its identity and its token, which decides on its
    grant. So clients on many machines share what one of them has found."""
    return replace(CLIENT.get(), address="", grant=None, encryption_key=None)
