"""Plug-ins of the pipeline: what a protocol adds so that Spark reads its streams, and appends to them.

An installed distribution registers one `ClientPlugin` for each protocol in the entry-point group `penstock.spark`,
under the protocol's name (option `protocol`). The built-in protocols are registered in the same way, in
`clients/<protocol>/plugin.py`; no other module has a list of protocols.

All plug-ins are loaded when the first address is parsed, in each of Spark's processes: a module with a plug-in imports
the client inside the function that opens it (the three built-in clients together take 0.45 s).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock_codecs.limits import MIB
from penstock_codecs.plugins import installed

if TYPE_CHECKING:
    from penstock_spark.clients.base import StreamClient
    from penstock_spark.clients.endpoint import Endpoint

__all__ = ["Appends", "ClientPlugin", "Limits", "Scheme", "plugin_of", "plugins", "schemes"]


class Scheme(NamedTuple):
    """One scheme of addresses. `port`: if the address has none. `directory`: the address is that of a server that
    names the servers with the streams."""

    port: int
    tls: bool = False
    directory: bool = False


class Appends(Enum):
    """The condition by which a server stores an append that is sent twice once."""

    EXPECTED = auto()
    """It names the sequence number that it must begin at (`StreamClient.appender`). The sink's marker, which is a
    header, and its ledger tell what is stored."""
    NUMBERED = auto()
    """It names its writer and an increasing number (`StreamClient.numbered_appender`)."""


class Limits(NamedTuple):
    """Limits of one append: records, bytes, and bytes of a single record; both metered as in S2 (fact sheet, 5.1). A
    record larger than `most_bytes` is an append by itself."""

    most_records: int
    most_bytes: int
    most_record: int

    def less(self, room: int) -> Limits:
        """Return the limits with so many bytes less, for what the sink adds to the first record of an append."""
        return self._replace(most_bytes=self.most_bytes - room, most_record=self.most_record - room)


_USUAL: Final = Limits(1000, MIB, MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlugin:
    """One protocol, in the pipeline.

    `open` returns a client of the endpoint, which connects on first use. `schemes`: by name; that of an address without
    one comes first.
    """

    open: Callable[[Endpoint], StreamClient]
    schemes: Mapping[str, Scheme]
    assumed: bool = False
    """An address that has neither scheme nor option `protocol` is for this protocol."""
    basin_hosts: bool = False
    """Each basin may have a host of its own (`endpoint.BASIN_LABEL`)."""
    bounds: frozenset[str] = frozenset({"seq_num"})
    """Kinds of bounds, beside `earliest` and `latest`, that its streams have: `seq_num`, `timestamp`, `offset`."""
    lists: bool = True
    """Its servers have a list of streams (`StreamClient.streams`)."""
    basins: bool = True
    """The names of its streams begin with a basin, as `basin/stream`."""
    headers: bool = False
    """Its records have headers and timestamps, which the sink writes. Otherwise, a gateway may store them in envelopes
    (option `envelopes`)."""
    appends: Appends | None = None
    """How the sink writes; None: it does not."""
    no_appends: str = "it has no conditional appends, so rows would be duplicated when Spark repeats a task"
    """Why the sink does not write, as the end of a sentence."""
    limits: Limits = _USUAL
    """Of the sink's appends."""
    check_basin: Callable[[str], None] | None = None
    """Raises ValueError for what is no name of a basin, in which the sink is to keep its ledger."""


@cache
def plugins() -> dict[str, ClientPlugin]:
    """Return all installed plug-ins by protocol, in alphabetical order."""
    return installed("penstock.spark", ClientPlugin)


@cache
def schemes() -> dict[str, tuple[str, Scheme]]:
    """Return the schemes of all protocols, with their protocol."""
    return {
        name: (protocol, scheme) for protocol, plugin in plugins().items() for name, scheme in plugin.schemes.items()
    }


def plugin_of(protocol: str) -> ClientPlugin:
    """Return the plug-in of a protocol. Raises KeyError."""
    return plugins()[protocol]
