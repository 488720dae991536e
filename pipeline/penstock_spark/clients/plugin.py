"""Plug-ins of the pipeline: what a protocol adds so that Spark reads its streams, and appends to them.

An installed distribution registers one `ClientPlugin` for each protocol in the entry-point group `penstock.spark`,
under the protocol's name (option `protocol`). The built-in protocols are registered in the same way, in
`clients/<protocol>/plugin.py`; no other module has a list of protocols.

All plug-ins are loaded when the first address is parsed, in each of Spark's processes: a module with a plug-in imports
the client inside the function that opens it (the built-in clients together take 0.45 s).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock_codecs.compression import Compression
from penstock_codecs.limits import MIB
from penstock_codecs.plugins import installed

if TYPE_CHECKING:
    from penstock_spark.clients.base import StreamClient

__all__ = [
    "BASIN_LABEL",
    "AppendLimits",
    "ClientPlugin",
    "Deduplication",
    "Endpoint",
    "Scheme",
    "plugin_of",
    "plugins",
    "schemes",
]


BASIN_LABEL: Final = "{basin}."
"""Prefix of a host where each basin has its own: `https://{basin}.b.s2.dev`."""


class Scheme(NamedTuple):
    """One scheme of addresses. `port`: if the address has none. `directory`: the address is that of a server that
    names the servers with the streams."""

    port: int
    tls: bool = False
    directory: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server. Picklable: the driver sends it to executors, so its files must exist there too.

    Text: `SCHEME://HOST:PORT`, with one of the schemes of the plug-ins (`ClientPlugin.schemes`). `host` may begin with
    BASIN_LABEL, in protocols that have such hosts. `directory`: see `Scheme`.

    `ca_file`: PEM of the authorities trusted to sign the server's certificate; None for the system's.
    `certificate_file`, `key_file`: PEM of the client's certificate, for mTLS. `token`: sent as `authorization: Bearer`
    (to a controller as Basic if it is `user:password`, to a segment store as its delegation token); the repr hides it.
    `connect_seconds`, `request_seconds`: time limits for connecting, and for each next byte. `recover_seconds`: how
    long to retry a server that answered before and is gone; one that never answered is retried for `connect_seconds` at
    most. `compression`: of what is sent and requested, in protocols that have one.
    """

    protocol: str
    host: str
    port: int
    tls: bool = False
    directory: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    token: str = field(default="", repr=False)
    connect_seconds: float = 10.0
    request_seconds: float = 60.0
    recover_seconds: float = 30.0
    compression: Compression = Compression.NONE

    def __str__(self) -> str:
        """Return the address: `https://host:port`."""
        wanted = (self.protocol, self.tls, self.directory)
        scheme = next(name for name, (by, it) in schemes().items() if (by, it.tls, it.directory) == wanted)
        return f"{scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """`host:port`, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Deduplication(Enum):
    """The condition by which a server stores an append that is sent twice once."""

    EXPECTED = auto()
    """It names the sequence number that it must begin at (`StreamClient.appender`). The sink's marker, which is a
    header, and its ledger tell what is stored."""
    NUMBERED = auto()
    """It names its writer and an increasing number (`StreamClient.numbered_appender`)."""


class AppendLimits(NamedTuple):
    """Limits of one append: records, bytes, and bytes of a single record; both metered as in S2 (fact sheet, 5.1). A
    record larger than `most_bytes` is an append by itself."""

    most_records: int
    most_bytes: int
    most_record: int

    def less(self, room: int) -> AppendLimits:
        """Return the limits with so many bytes less, for what the sink adds to the first record of an append."""
        return self._replace(most_bytes=self.most_bytes - room, most_record=self.most_record - room)


_USUAL: Final = AppendLimits(1000, MIB, MIB)


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
    """Each basin may have a host of its own (BASIN_LABEL)."""
    bounds: frozenset[str] = frozenset({"seq_num"})
    """Kinds of bounds, beside `earliest` and `latest`, that its streams have: `seq_num`, `timestamp`, `offset`."""
    lists: bool = True
    """Its servers have a list of streams (`StreamClient.streams`)."""
    basins: bool = True
    """The names of its streams begin with a basin, as `basin/stream`."""
    headers: bool = False
    """Its records have headers and timestamps, which the sink writes. Otherwise, a gateway may store them in envelopes
    (option `envelopes`)."""
    appends: Deduplication | None = None
    """The way in which the sink writes; None if it does not."""
    limits: AppendLimits = _USUAL
    """Of the sink's appends."""
    check_basin: Callable[[str], None] | None = None
    """Raise ValueError unless the text can name a basin for the ledger of the sink."""


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
