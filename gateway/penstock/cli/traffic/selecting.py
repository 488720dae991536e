"""The options that say which connections are meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from penstock.captures.text import printable

__all__ = ["PLURALS", "SPOKEN", "in_words", "selection_options"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    ("connection", "connections", "N", "The connection of this number (`penstock connections`, the log)."),
    ("stream", "streams", "BASIN/STREAM", "Connections of clients with a request about this stream; a glob."),
    ("route", "routes", "NAME", "Connections with a request that took this route, and those with its backs; a glob."),
    ("identity", "identities", "NAME", "Connections of clients of this identity; a glob."),
    ("listener", "listeners", "KIND[.NAME]", "Connections of clients by this listener, as s2 or s2.public."),
    ("back", "backs", "NAME", "Connections with the server of this back; with --listener: those of either."),
    ("protocol", "protocols", "NAME", "What is spoken: {}."),
    ("peer", "peers", "NETWORK", "Connections with peers in this network, as 10.1.0.0/16."),
)
PLURALS: Final = {name: plural for name, plural, _, _ in _OPTIONS}
"""What the management listener calls each option in JSON."""


SPOKEN: Final = ("s2", "s3p", "segment", "controller")
"""What connections are known to speak by configuration."""


def selection_options(protocols: Sequence[str]) -> Callable[[F], F]:
    """Each may be given several times: of one kind one must hold, and something of each kind. `protocols`: those that
    can be chosen."""
    kinds: dict[str, Any] = {"connection": click.IntRange(1), "protocol": click.Choice(protocols)}

    def add(command: F) -> F:
        for name, _, metavar, meaning in reversed(_OPTIONS):
            said = meaning.format(", ".join(protocols))
            command = click.option(f"--{name}", type=kinds.get(name), metavar=metavar, multiple=True, help=said)(
                command
            )
        return command

    return add


def in_words(selection: dict[str, Sequence[Any]]) -> str:
    """A selection, as JSON has it, for people."""
    singular = {plural: name for name, plural in PLURALS.items()}
    words = [f"{singular[plural]} {' or '.join(map(str, values))}" for plural, values in selection.items()]
    return printable(", ".join(words)) or "everything"
