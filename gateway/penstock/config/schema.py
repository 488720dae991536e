"""What can be configured: one struct per TOML table, with every default, bound, unit and explanation.

Sizes are in bytes and times in seconds unless a key's name says else. `config/gateway.toml` and
`docs/configuration.md` are written from these structs (`penstock.config.document`), so they cannot drift apart.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.config.access import Access
from penstock.config.backs import BackTable
from penstock.config.faults import FaultTable
from penstock.config.fields import DEFAULT_BASIN, Table, check_basin, key
from penstock.config.lifecycle import Drain, Reload
from penstock.config.limits import Limits
from penstock.config.listeners import ControllerListener, Listeners, S2Listener, S3PListener, SegmentListener
from penstock.config.management import Management
from penstock.config.recorder import RecorderTable
from penstock.config.references import check_faults, check_recorder, check_references
from penstock.config.routes import IdentityTable, RouteTable
from penstock.config.tracing import Tracing
from penstock.config.workers import check_workers
from penstock_codecs.limits import MIB

__all__ = ["Basin", "Config", "Drain", "Log", "Reload", "Store", "default_config"]


class Basin(Table, frozen=True, kw_only=True):
    """A basin that is there from the start. What is said here is what holds, whatever it was before."""

    name: Annotated[str, key("8 to 48 of a-z, 0-9 and -, with a letter or digit at both ends.")]
    create_stream_on_append: Annotated[bool, key("An append to a stream that is not there creates it.")] = True
    create_stream_on_read: Annotated[bool, key("A read of a stream that is not there creates it.")] = True
    retention_seconds: Annotated[
        int, key("How long records are kept, where the stream does not say; 0: for ever.", least=0)
    ] = 604_800
    timestamping_mode: Annotated[
        Literal["client-prefer", "client-require", "arrival"],
        key("Whose clock stamps records, where the stream does not say."),
    ] = "client-prefer"

    def __post_init__(self) -> None:
        check_basin("name", self.name)


class Store(Table, frozen=True, kw_only=True):
    """The embedded store."""

    directory: Annotated[str, key("Relative to the working directory; created where it is missing.")] = "./data"
    append_inflight_bytes: Annotated[
        int, key("Appends that are not yet on disk, over all streams; more wait their turn.", least=1 * MIB)
    ] = 128 * MIB
    tail_cache_bytes: Annotated[int, key("The newest batches, kept in memory for those who follow.", least=1 * MIB)] = (
        32 * MIB
    )
    read_ahead_batches: Annotated[
        int, key("Batches, of up to 1 MiB each, that are read ahead of slow readers, over all reads.", least=1)
    ] = 64
    cached_streams: Annotated[int, key("Idle streams whose heads stay in memory, about 1 KiB each.", least=1)] = 10_000
    reader_threads: Annotated[int, key("Catch-up reads that use the disk at once.", least=1, most=64)] = 4
    sweep_interval_seconds: Annotated[
        float, key("How often records past their retention, and empty streams, are looked for.", least=0.1)
    ] = 30.0
    basins: tuple[Basin, ...] = ()

    def __post_init__(self) -> None:
        names = [basin.name for basin in self.basins]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"basin {name} stands twice in [[store.basins]]")


class Log(Table, frozen=True, kw_only=True):
    """The log, on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], key("The least that is logged.")] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        key('"json": one object a line; "auto": console on a terminal, else json.'),
    ] = "auto"


class Config(Table, frozen=True, kw_only=True):
    """The whole configuration of one gateway. What stands before all tables:"""

    workers: Annotated[
        int,
        key("Processes that serve clients; where there are several, one more has the store.", least=1, most=64),
    ] = 1
    listeners: Listeners = Listeners()
    limits: Limits = Limits()
    backs: dict[str, BackTable] = msgspec.field(default_factory=dict)
    routes: tuple[RouteTable, ...] = ()
    identities: tuple[IdentityTable, ...] = ()
    faults: tuple[FaultTable, ...] = ()
    access: Access | None = None
    management: Management = Management()
    recorder: RecorderTable | None = None
    store: Store = Store()
    drain: Drain = Drain()
    reload: Reload = Reload()
    log: Log = Log()
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        listeners = self.listeners
        if not (listeners.s2 or listeners.s3p or listeners.segment):
            raise ValueError("there is nothing to run: give [listeners.s2], [listeners.s3p] or [listeners.segment]")
        check_references(self.listeners, self.backs, self.routes, self.identities)
        check_faults(self.faults, self.listeners, self.routes, self.identities)
        if self.recorder is not None:
            check_recorder(self.recorder, self.listeners, self.backs, self.routes)
        check_workers(self.workers, self.listeners, self.backs, self.routes, self.recorder)


def default_config() -> Config:
    """What runs without a file: all listeners and a basin `penstock`. `config/gateway.toml` says the same."""
    listeners = Listeners(
        s2=(S2Listener(),), s3p=(S3PListener(),), segment=(SegmentListener(),), controller=(ControllerListener(),)
    )
    return Config(listeners=listeners, store=Store(basins=(Basin(name=DEFAULT_BASIN),)))
