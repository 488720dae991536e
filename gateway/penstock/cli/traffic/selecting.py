"""Options that select connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click

from penstock.capture.plugin import HTTP, plugins
from penstock.recorder.captures.choosing import parse_terms
from penstock.recorder.captures.text import printable

__all__ = ["PLURALS", "SPOKEN", "in_words", "parse_selection", "query", "selection_options"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    ("connection", "connections", "N", "This connection, by its number in `penstock connections` and the log."),
    ("stream", "streams", "BASIN/STREAM", "Connections of clients with a request about this stream; a glob."),
    ("route", "routes", "NAME", "Connections with a request on this route, and those to its backs; a glob."),
    ("identity", "identities", "NAME", "Connections of clients of this identity; a glob."),
    ("listener", "listeners", "KIND[.NAME]", "Connections of clients to this listener, such as s2 or s2.public."),
    ("back", "backs", "NAME", "Connections to the server of this back; with --listener, connections of either."),
    ("protocol", "protocols", "NAME", "Connections in this protocol: {}."),
    ("peer", "peers", "NETWORK", "Connections with peers in this network, such as 10.1.0.0/16."),
)
PLURALS: Final = {name: plural for name, plural, _, _ in _OPTIONS}
"""The name of each option in the JSON of the management listener."""


SPOKEN: Final = tuple(name for name, plugin in plugins().items() if plugin.layers != (HTTP,))
"""Protocols that connections are known to speak by configuration."""


def selection_options(protocols: Sequence[str]) -> Callable[[F], F]:
    """Return a decorator that adds the options. Each may be repeated: one value of each option given must match.
    `protocols`: choices for `--protocol`."""
    kinds: dict[str, Any] = {"connection": click.IntRange(1), "protocol": click.Choice(protocols)}

    def add(command: F) -> F:
        for name, _, metavar, meaning in reversed(_OPTIONS):
            said = meaning.format(", ".join(protocols))
            command = click.option(f"--{name}", type=kinds.get(name), metavar=metavar, multiple=True, help=said)(
                command
            )
        return command

    return add


def parse_selection(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a selection in one line, such as `stream=penstock/orders* listener=s2`: the options as NAME=VALUE, which
    may be repeated. Raises ValueError, whose message says what is wrong."""
    return parse_terms(text, PLURALS)


def query(selection: Mapping[str, Sequence[Any]]) -> str:
    """Return a selection by the names of the options as the query of a request."""
    return urlencode([(name, value) for name, values in selection.items() for value in values])


def in_words(selection: dict[str, Sequence[Any]]) -> str:
    """Return a selection, as in JSON, in words."""
    singular = {plural: name for name, plural in PLURALS.items()}
    words = [f"{singular[plural]} {' or '.join(map(str, values))}" for plural, values in selection.items()]
    return printable(", ".join(words)) or "everything"
