"""Groups that list their commands without importing them: the command line's own, and the pipeline's.

A command is imported, with all that it needs, when it is called, or when its own options are completed or explained.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from importlib import import_module

import click

__all__ = ["ListingGroup", "listed"]


class _Listed(click.Command):
    """A command that is not imported yet: its name and its summary."""

    def __init__(self, name: str, place: str, line: str) -> None:
        super().__init__(name, short_help=line)
        self._place = place

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self._place.partition(":")
        gc.disable()  # modules stay: a search for cycles among them takes a tenth of the time, and finds none
        try:
            command = getattr(import_module(module), name)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return command


def listed(commands: Mapping[str, tuple[str, str]]) -> dict[str, click.Command]:
    """Return the commands of a `ListingGroup`, sorted. `commands`: `MODULE:NAME` and summary of each."""
    return {name: _Listed(name, *commands[name]) for name in sorted(commands)}


class ListingGroup(click.Group):
    """A group that imports the one command that is called or completed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that these arguments call, and import it. Raises UsageError if there is none."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Listed) else command, rest
