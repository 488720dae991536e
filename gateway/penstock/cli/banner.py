"""The page that `penstock serve` prints when it listens: commands to copy, with the addresses actually bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.app.config import Config, listener_kind_of
from penstock.core.address import Address
from penstock.protocols.plugin import Example, listener_kinds
from penstock.protocols.tables import ListenerTable

__all__ = ["banner"]

STREAM: Final = "hello"


def banner(config: Config, addresses: Mapping[str, Sequence[Address]]) -> str:
    """Return the page: one command for each thing that a client can do. `addresses` is as in `Running`."""
    lines = ["Penstock is running. Ctrl-C stops it. In another terminal:"]
    lines += _commands(config, addresses)
    if config.management.enabled:
        scheme = "https" if config.management.tls_certificate else "http"
        lines += ["", f"For operators, in a browser: {scheme}://{addresses['management'][0].to_connect}/"]
    return "\n".join([*lines, ""])


def _commands(config: Config, addresses: Mapping[str, Sequence[Address]]) -> list[str]:
    """Return the commands of each kind of listener; kinds that only read come after one that appends."""
    basin, kinds = _basin(config), dict[str, tuple[ListenerTable, Address]]()
    for label, listener in config.listeners.labelled():  # of several of a kind, the first one's commands are shown
        kinds.setdefault(listener_kind_of(label), (listener, addresses[f"listeners.{label}"][0].to_connect))
    creation = _creation(config, basin)
    lines, reading = list[str](), list[str]()
    for name in kinds:
        commands = list(
            listener_kinds()[name].commands(*kinds[name], Example(basin, STREAM, creation, first=not lines))
        )
        lines += commands
        if not commands:
            reading.append(name)
    alone = not lines
    for name in reading:
        example = Example(basin, STREAM, creation, first=not lines, alone=alone)
        lines += listener_kinds()[name].commands(*kinds[name], example)
    return lines


def _basin(config: Config) -> str:
    """Return the basin that the commands use: one that all listeners see."""
    for label, listener in config.listeners.labelled():
        sole = listener_kinds()[listener_kind_of(label)].sole_basin(listener)
        if sole is not None:
            return sole
    return config.store.basins[0].name if config.store.basins else "my-first-basin"


def _creation(config: Config, basin: str) -> str:
    """Return what must be created first; "" if an append creates its stream."""
    table = next((basin_table for basin_table in config.store.basins if basin_table.name == basin), None)
    if table is None:
        return "basin"
    return "" if table.create_stream_on_append else "stream"
