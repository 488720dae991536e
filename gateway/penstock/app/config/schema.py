"""The configuration: one struct per TOML table, with every default, bound, unit and explanation.

Sizes are in bytes and times in seconds unless a key's name says otherwise. `config/gateway.toml` and
`docs/configuration.md` are generated from these structs (`penstock.app.config.document`), so they cannot drift apart.
"""

from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.app.config.access import Access
from penstock.app.config.backs import AnyBack
from penstock.app.config.faults import FaultTable
from penstock.app.config.listeners import Listeners, default_listeners
from penstock.app.config.management import Management
from penstock.app.config.recorder import RecorderTable
from penstock.app.config.references import check_faults, check_recorder, check_references, check_state, state_back
from penstock.app.config.routes import IdentityTable, RouteTable
from penstock.app.config.tracing import Tracing
from penstock.core.config_fields import DEFAULT_BASIN, Table, check_basin, check_stream, key
from penstock.model.limits import MIB
from penstock.net.limits.settings import Limits
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.tables import ConfigView

__all__ = [
    "BasinTable",
    "Config",
    "DrainTable",
    "LogTable",
    "ReloadTable",
    "StoreTable",
    "StreamTable",
    "default_config",
    "tokens_in_state",
    "view_of",
]

_Seconds = Annotated[int, Meta(ge=0)]
_Bytes = Annotated[int, Meta(ge=0)]
_StorageClass = Annotated[str, Meta(min_length=1, max_length=64)]


class DrainTable(Table, frozen=True, kw_only=True):
    """Shutdown on SIGTERM and SIGINT (docs/operations.md)."""

    accept_seconds: Annotated[
        float,
        key(
            "Time to accept and serve clients after readiness is withdrawn: as long as load balancers take to send "
            "new clients elsewhere.",
            least=0,
        ),
    ] = 0.0
    grace_seconds: Annotated[
        float,
        key(
            "Time that sessions may continue after they are advised to reconnect; then they are ended in order.",
            least=0,
        ),
    ] = 3.0
    deadline_seconds: Annotated[
        float,
        key(
            "Total time that clients have to finish after the gateway stops accepting them; then their connections "
            "are cut.",
            least=0,
        ),
    ] = 10.0


class ReloadTable(Table, frozen=True, kw_only=True):
    """Reload of the configuration when its file changes (docs/operations.md). SIGHUP and `POST /reload` always
    reload."""

    watch: Annotated[bool, key("Reload the configuration whenever its file changes.")] = False
    watch_seconds: Annotated[float, key("Interval between checks of the file.", least=0.1)] = 2.0


class BasinTable(Table, frozen=True, kw_only=True):
    """A basin that is created at the start. Its settings here replace earlier ones; existing streams keep those that
    they were created with."""

    name: Annotated[
        str, key("Name of the basin: 8 to 48 characters of a-z, 0-9 and -, with a letter or digit at both ends.")
    ]
    create_stream_on_append: Annotated[bool, key("Create a missing stream when a client appends to it.")] = True
    create_stream_on_read: Annotated[bool, key("Create a missing stream when a client reads it.")] = True
    retention_seconds: Annotated[
        int,
        key(
            "Time that new streams keep their records, unless they are created with another retention; 0: unlimited.",
            least=0,
        ),
    ] = 604_800
    retention_bytes: Annotated[
        int,
        key(
            "Bytes that new streams keep at least, 8 and the body of each record, unless they are created with "
            "another bound; older records are removed. 0: unlimited.",
            least=0,
        ),
    ] = 0
    timestamping_mode: Annotated[
        Literal["client-prefer", "client-require", "arrival"],
        key(
            'Timestamps of records in new streams, unless they are created with another mode. "client-prefer": '
            'those of the client, or the time of arrival for a record without one; "client-require": those of the '
            'client, and an append without them is refused; "arrival": the time of arrival.'
        ),
    ] = "client-prefer"
    stream_cipher: Annotated[
        Literal["none", "aes-256-gcm", "aegis-256"],
        key(
            "Cipher of new streams' records at rest. Clients present the key with each append and read; those whose "
            "protocol has no place for one are refused."
        ),
    ] = "none"

    def __post_init__(self) -> None:
        check_basin("name", self.name)


class StreamTable(Table, frozen=True, kw_only=True):
    """A stream that is created at the start, in a basin that exists then. Its settings here replace earlier ones; those
    left out are the basin's. Its records and its cipher stay."""

    basin: Annotated[str, key("Name of its basin.", example="penstock")]
    name: Annotated[str, key("Name of the stream: 1 to 512 bytes.", example="events")]
    storage_class: Annotated[_StorageClass | None, key("Any text; clients read it back.", example="express")] = None
    retention_seconds: Annotated[
        _Seconds | None, key("Time that it keeps its records; 0: unlimited.", example=604_800)
    ] = None
    retention_bytes: Annotated[
        _Bytes | None, key("Bytes that it keeps at least; older records are removed. 0: unlimited.", example=1_000_000)
    ] = None
    timestamping_mode: Annotated[
        Literal["client-prefer", "client-require", "arrival"] | None,
        key("Timestamps of its records, as in [[store.basins]].", example="arrival"),
    ] = None
    timestamping_uncapped: Annotated[bool | None, key("Let clients' timestamps lie in the future.", example=True)] = (
        None
    )
    delete_on_empty_seconds: Annotated[
        _Seconds | None, key("Time after which it is deleted if it is empty; 0: never.", example=3600)
    ] = None

    def __post_init__(self) -> None:
        check_basin("basin", self.basin)
        check_stream("name", self.name)


class StoreTable(Table, frozen=True, kw_only=True):
    """The embedded store."""

    directory: Annotated[str, key("Directory of the store's files; created if it is missing.", path=True)] = "./data"
    append_inflight_bytes: Annotated[
        int,
        key("Most bytes of appends that are not on disk yet, over all streams; further appends wait.", least=1 * MIB),
    ] = 128 * MIB
    tail_cache_bytes: Annotated[
        int, key("Memory for the newest batches, from which readers that follow a stream are served.", least=1 * MIB)
    ] = 32 * MIB
    read_ahead_batches: Annotated[
        int, key("Most batches, of up to 1 MiB each, that are read ahead of slow readers, over all reads.", least=1)
    ] = 64
    cached_streams: Annotated[
        int, key("Most idle streams whose state is kept in memory, about 1 KiB each.", least=1)
    ] = 10_000
    reader_threads: Annotated[
        int,
        key("Most threads that read older records from the disk at the same time.", least=1, most=64),
    ] = 2
    sweep_interval_seconds: Annotated[
        float,
        key(
            "Interval between removals of records past their retention and of streams that are to be deleted when "
            "they are empty.",
            least=0.1,
        ),
    ] = 30.0
    basins: tuple[BasinTable, ...] = ()
    streams: tuple[StreamTable, ...] = ()

    def __post_init__(self) -> None:
        streams = [(stream.basin, stream.name) for stream in self.streams]
        for basin, name in streams:
            if streams.count((basin, name)) > 1:
                raise ValueError(f"stream {name} of basin {basin} is defined twice in [[store.streams]]")
        names = [basin.name for basin in self.basins]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"basin {name} is defined twice in [[store.basins]]")


class LogTable(Table, frozen=True, kw_only=True):
    """The log, on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], key("Lowest level that is logged.")] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        key(
            'Format of the log. "json": one object per line; "console": text for people; "auto": console on a '
            "terminal, else json."
        ),
    ] = "auto"


class Config(Table, frozen=True, kw_only=True):
    """The whole configuration of one gateway."""

    keys_removed = MappingProxyType(
        {"workers": "a gateway is one process: docs/scaling.md says how several share the work"}
    )

    listeners: Listeners = Listeners()
    limits: Limits = Limits()
    backs: dict[str, AnyBack] = msgspec.field(default_factory=dict)
    routes: tuple[RouteTable, ...] = ()
    identities: tuple[IdentityTable, ...] = ()
    faults: tuple[FaultTable, ...] = ()
    access: Access | None = None
    management: Management = Management()
    recorder: RecorderTable | None = None
    store: StoreTable = StoreTable()
    drain: DrainTable = DrainTable()
    reload: ReloadTable = ReloadTable()
    log: LogTable = LogTable()
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        serving = [name for name, kind in listener_kinds().items() if kind.serves_records]
        if not any(getattr(self.listeners, name) for name in serving):
            *most, last = [f"[listeners.{name}]" for name in serving]
            raise ValueError(f"there is nothing to run: give {', '.join(most)} or {last}")
        embedded = {"store.basins": bool(self.store.basins), "store.streams": bool(self.store.streams)}
        problems = [
            *check_references(self.listeners, self.backs, self.routes, self.identities),
            *check_state(self.backs, self.routes, embedded),
            *check_faults(self.faults, self.listeners, self.routes, self.identities),
        ]
        if self.recorder is not None:
            problems += check_recorder(self.recorder, self.listeners, self.backs, self.routes)
        if problems:
            raise ValueError("\n".join(problems))


def view_of(config: Config) -> ConfigView:
    """Return the parts of a configuration that a listener may depend on."""
    labels = [label for label, _ in config.listeners.labelled()]
    routes = {label: [route for route in config.routes if route.serves(label)] for label in labels}
    return ConfigView(
        listeners=tuple(config.listeners.labelled()),
        basins={basin.name: basin.create_stream_on_append for basin in config.store.basins},
        store_directory=config.store.directory if state_back(config.backs) is None else "",
        access_tokens=_access_tokens(config),
        usernames=tuple(identity.username for identity in config.identities if identity.username is not None),
        identified=frozenset(label for label in labels if routes[label] and all(one.identity for one in routes[label])),
    )


def tokens_in_state(config: Config) -> str | None:
    """Return the name of the back whose server keeps the access tokens, None if a file has them or there are none."""
    return state_back(config.backs) if config.access is not None and config.access.file is None else None


def _access_tokens(config: Config) -> str | None:
    """Return where access tokens are and what issues them, None if there are none."""
    if config.access is None:
        return None
    if (back := tokens_in_state(config)) is not None:
        return f"the gateway's state, which back {back} keeps, as hashes; /v1/access-tokens issues and revokes them"
    file = config.access.path(config.store.directory)
    return f"{file}, as hashes; `penstock token` issues and revokes them"


def default_config() -> Config:
    """Return the configuration without a file: all listeners and a basin `penstock`, as in `config/gateway.toml`."""
    return Config(listeners=default_listeners(), store=StoreTable(basins=(BasinTable(name=DEFAULT_BASIN),)))
