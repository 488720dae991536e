"""The report that `penstock check` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.app.bootstrap.recorder import redaction_effects
from penstock.app.config import (
    EMBEDDED,
    BackTable,
    BasinTable,
    Config,
    RecorderTable,
    RedactTable,
    RouteTable,
    kind_of_back,
    listener_kind_of,
    view_of,
)
from penstock.app.config.advice import advice
from penstock.app.config.references import state_back
from penstock.core.permissions import Permission
from penstock.model.limits import MIB
from penstock.net.tls.files import certificates_in
from penstock.protocols.plugin import ListenerKind, back_kinds, listener_kinds
from penstock.protocols.tables import ListenerTable, LossTable, NumberedBackTable, TlsListener
from penstock.routing.loss.plan import EMBEDDED_SIDE, BackSide, Fate, FrontSide, Item, plan_losses

__all__ = ["report", "report_parts"]

WIDTH = 110
_LOSSES = {
    "refuse": "refused: the read fails with an error that names the record",
    "envelope": "carried whole, in an envelope inside the body (docs/loss.md)",
    "drop": "dropped, and counted in the log",
}


def access_lines(config: Config) -> Iterator[str]:
    """Yield lines on the credentials that clients need, and on where they are kept."""
    for label, listener in config.listeners.labelled():
        for line in listener_kinds()[listener_kind_of(label)].describe_access(listener, view_of(config)):
            yield f"listeners.{label}: {line}"
        if listener.proxies:
            header = "the PROXY protocol" if listener.proxy_protocol else "X-Forwarded-For"
            yield f"listeners.{label}: clients' addresses come from {', '.join(listener.proxies)}, by {header}"


def tls_lines(config: Config) -> Iterator[str]:
    """Yield a line for each listener with TLS, and for each back that is shown a certificate."""
    for label, listener in config.listeners.labelled():
        yield from _listener(f"listeners.{label}", listener)
    if config.management.enabled:
        yield from _listener("management", config.management)
    for name, back in config.backs.items():
        if back.tls and back.tls_certificate is not None:
            yield f"backs.{name} gets {_shown(back.tls_certificate)}"
    for identity in config.identities:
        if identity.certificates:
            yield f"Identity {identity.name}: certificates with {' or '.join(identity.certificates)}"


def _listener(name: str, listener: TlsListener) -> Iterator[str]:
    if listener.tls_certificate is None:
        return
    parts = [f"{name}: TLS 1.2 or newer, with {_shown(listener.tls_certificate)}"]
    for tls_certificate in listener.tls_certificates:
        parts.append(
            f"for {', '.join(tls_certificate.names) or 'the names in it'}: {_shown(tls_certificate.certificate)}"
        )
    parts.append(_asked(listener))
    yield "; ".join(parts)


def _asked(listener: TlsListener) -> str:
    if listener.tls_client_ca is None:
        return "clients are not asked for certificates"
    revoked = f" and not revoked in {listener.tls_client_crl}" if listener.tls_client_crl else ""
    if listener.tls_client_auth == "required":
        return f"clients must present a certificate from an authority in {listener.tls_client_ca}{revoked}"
    return f"clients may present a certificate, from an authority in {listener.tls_client_ca}{revoked}"


def _shown(path: str) -> str:
    ends = [certificate.until for certificate in certificates_in(path) if certificate.until is not None]
    if not ends:
        return path
    first = min(ends).astimezone(UTC)
    return f"{path} ({'until' if first > datetime.now(UTC) else 'EXPIRED on'} {first:%Y-%m-%d})"


def recorder_lines(config: Config) -> Iterator[str]:
    """Yield lines on which connections are recorded, where, how long files are kept, and what is redacted in them."""
    table = config.recorder
    if table is None:
        return
    directory = Path(table.directory).absolute()
    if table.start:
        yield f"From the start, {_which(table)}: plaintext, as pcapng files in {directory}"
    else:
        yield f"Only after `penstock record start`, as pcapng files in {directory}"
    yield f"A file ends {_ends(table)}; {_stays(table)}"
    flushed = {"never": "never", "close": "when it is closed", "interval": f"every {table.fsync_seconds:g} s"}
    packed = "; closed files are compressed (zstd)" if table.compress == "zstd" else ""
    yield f"A file is synchronised to disk {flushed[table.fsync]}{packed}"
    yield f"Redacted: {'; '.join(_blanked(table.redact)) or 'NOTHING'}"
    for protocol, effects in redaction_effects(config).items():
        yield f"Redacted in {protocol}: {'; '.join(f'{key}: {effect}' for key, effect in effects.items())}"


def _which(table: RecorderTable) -> str:
    places = [f"listener {name}" for name in table.listeners] + [f"back {name}" for name in table.backs]
    parts = [f"of {' or '.join(places)}"] if places else []
    parts += [f"that speak {' or '.join(table.protocols)}"] if table.protocols else []
    parts += [f"used by route {' or '.join(table.routes)} (or with its backs)"] if table.routes else []
    parts += [f"about stream {' or '.join(table.streams)}"] if table.streams else []
    return f"connections {', '.join(parts)}" if parts else "all connections, of clients and with servers"


def _ends(table: RecorderTable) -> str:
    ends = [f"at {_size(table.rotate_bytes)}"] if table.rotate_bytes else []
    ends += [f"after {table.rotate_seconds:g} s"] if table.rotate_seconds else []
    return " or ".join(ends) or "with the gateway"


def _stays(table: RecorderTable) -> str:
    bounds = [f"{table.keep_files} files"] if table.keep_files else []
    bounds += [_size(table.keep_bytes)] if table.keep_bytes else []
    return f"the newest are kept, up to {' and '.join(bounds)}" if bounds else "all are kept"


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size} bytes"


def _blanked(redact: RedactTable) -> Iterator[str]:
    if redact.headers:
        yield f"the values of headers {', '.join(redact.headers)}"
    if redact.parameters:
        yield f"of query parameters {', '.join(redact.parameters)}"
    if redact.tokens:
        yield "tokens inside messages"
    if redact.record_headers:
        yield f"the values of record headers {', '.join(redact.record_headers)}"
    if redact.patterns:
        yield f"matches of {', '.join(redact.patterns)}"


def back_lines(config: Config) -> Iterator[str]:
    """Yield a line for each back."""
    for name, table in config.backs.items():
        kind = back_kinds()[kind_of_back(table)]
        where = " and ".join(f"{what} {address}".lstrip() for what, address in kind.addresses(table).items())
        secure = "over TLS" if table.tls else "in plaintext"
        yield f"{name}: {kind.title} at {where}, {secure}{f', {remarks}' if (remarks := kind.describe(table)) else ''}"


def route_parts(config: Config) -> Iterator[tuple[str, list[str]]]:
    """Yield a headed list for each route and kind of listener that it serves."""
    for route in config.routes:
        yield f"Route {route.name}", list(_about(config, route))
        previous: list[str] = []
        for label, front in _fronts(config, route):
            lines = list(_planned(front, _back_side(config.backs.get(route.back)), route.permissions))
            if lines != previous:
                previous = lines
                yield f"Route {route.name}, clients of {label}", lines


def _about(config: Config, route: RouteTable) -> Iterator[str]:
    named = f", named {route.to_basin or '{basin}'}/{route.to_stream or '{stream}'} there"
    to = route.back if route.back == EMBEDDED else f"back {route.back}"
    yield f"{route.in_words}: to {to}{named if route.to_basin or route.to_stream else ''}"
    if route.mirror is not None:
        yield f"mirrored to {route.mirror}, and compared record by record; a cut-over makes it the route's back"
    if route.permissions == ("read",):
        yield "read-only: all other operations are refused"
        return
    if len(set(route.permissions)) < len(Permission):
        yield f"clients may only {' and '.join(dict.fromkeys(route.permissions))}"
    if not route.create_streams:
        yield "clients cannot create streams there"
        return
    table = config.backs.get(route.back)
    if table is not None and not back_kinds()[kind_of_back(table)].keeps_partitions_apart:
        kinds = (
            listener_kinds()[listener_kind_of(label)] for label, _ in config.listeners.labelled() if route.serves(label)
        )
        if titles := sorted({kind.title for kind in kinds if kind.shows_partitions}):
            reason = "the gateway looks for the other before it creates one, which is not atomic (docs/names.md)"
            yield f"{' and '.join(titles)}: a stream and its partitions exclude each other; {reason}"
    if isinstance(table, NumberedBackTable) and not table.create_streams:
        yield f"an append does not create a missing stream (backs.{route.back}.create_streams)"


def _fronts(config: Config, route: RouteTable) -> Iterator[tuple[str, FrontSide]]:
    for label, listener in config.listeners.labelled():
        kind = listener_kinds()[listener_kind_of(label)]
        if kind.serves_records and route.serves(label):
            yield label, kind.side(listener)


def _back_side(table: BackTable | None) -> BackSide:
    """Return a back's side of a plan; `table` None is the embedded store."""
    return EMBEDDED_SIDE if table is None else back_kinds()[kind_of_back(table)].side(table)


def _planned(front: FrontSide, back: BackSide, permissions: Collection[str]) -> Iterator[str]:
    """Yield lines on how clients' appends and reads are carried, as far as their permissions allow them, and on what is
    guaranteed."""
    plan = plan_losses(front, back)
    for way, items in (("appends", plan.appends), ("reads", plan.reads)):
        if way.removesuffix("s") not in permissions:
            continue
        for fate in Fate:
            if some := [_item(item) for item in items if item.fate is fate]:
                yield f"{way}, {fate.value}: {'; '.join(some)}"
    for line in plan.guarantee:
        yield f"guarantee: {line}"


def _item(item: Item) -> str:
    return f"{item.what} ({item.how})" if item.how else item.what


def report(config: Config, source: str) -> str:
    """Return a description of what would run with `config`, as text; `source` is where it was read from."""
    parts = [(f"{source} is valid. It describes this gateway:", list[str]()), *report_parts(config)]
    return "\n\n".join(_part(title, lines) for title, lines in parts)


def report_parts(config: Config) -> list[tuple[str, list[str]]]:
    """Return the same as titles, each with its lines; parts without lines are left out."""
    parts = [
        ("Listeners", list(_listeners(config))),
        ("TLS", list(tls_lines(config))),
        ("Access", list(access_lines(config))),
        ("Backs", list(back_lines(config))),
        *route_parts(config),
        ("Names", list(_each(config, lambda kind, listener: kind.describe_names(listener)))),
        *(
            (f"Records that {kind.title} cannot carry", list(_each(config, _losses, kind)))
            for kind in listener_kinds().values()
        ),
        ("Store", list(_store(config))),
        ("Recorder", list(recorder_lines(config))),
        ("Traces", [] if config.tracing is None else [config.tracing.in_words]),
        ("Injected faults", [fault.in_words for fault in config.faults]),
        ("Shutdown", [f"On SIGTERM or SIGINT clients have {config.drain.deadline_seconds:g} s to finish."]),
        ("Attention", [("INSECURE: " if insecure else "") + text for insecure, text in advice(config)]),
    ]
    return [(title, lines) for title, lines in parts if lines]


def _each(
    config: Config,
    lines_of: Callable[[ListenerKind[Any], ListenerTable], Iterable[str]],
    only: ListenerKind[Any] | None = None,
) -> Iterator[str]:
    """Yield the lines `lines_of` of each listener, or of those of one kind, prefixed with its name if it has one."""
    for label, listener in config.listeners.labelled():
        kind = listener_kinds()[listener_kind_of(label)]
        if only in (None, kind):
            before = f"{listener.name}: " if listener.name else ""
            yield from (before + line for line in lines_of(kind, listener))


def _listeners(config: Config) -> Iterator[str]:
    for name, kind in listener_kinds().items():
        yield from _each(config, lambda kind, listener: kind.describe(listener, view_of(config)), kind)
        if not getattr(config.listeners, name):
            yield f"{kind.title}: off"
    if not config.management.enabled:
        yield "Management: off"
    else:
        tokens = len(config.management.bearer_tokens)
        who = f"clients with one of {tokens} bearer tokens" if tokens else "any client, without a token"
        who = config.management.clients(who)
        carrier = "HTTPS" if config.management.tls_certificate else "HTTP"
        what = f"health, routes, positions, cut-overs, recordings; {carrier}"
        yield f"Management ({what}) on {config.management.bind}, for {who}"


def _part(title: str, lines: list[str]) -> str:
    wrapped = (textwrap.fill(line, WIDTH, initial_indent="  - ", subsequent_indent="    ") for line in lines)
    return "\n".join([title, *wrapped])


def _losses(kind: ListenerKind[Any], listener: ListenerTable) -> Iterator[str]:
    loss = getattr(listener, "loss", None)
    if isinstance(loss, LossTable):
        headers = "the headers are dropped, the body is kept" if loss.headers == "drop" else None
        yield f"records with headers: {headers or _LOSSES[loss.headers]}"
        yield f"records with an empty body: {_LOSSES[loss.empty_body]}"
        yield f"command records (fence, trim): {_LOSSES[loss.command_records]}"
        yield from kind.loss_notes


def _store(config: Config) -> Iterator[str]:
    if (back := state_back(config.backs)) is not None:
        yield f"None: back {back} keeps the gateway's state, and the gateway needs no disk"
        return
    directory = Path(config.store.directory).absolute()
    state = "exists" if directory.is_dir() else "would be created"
    yield f"SQLite in {directory}, which {state}; an acknowledgement means that the records are on disk"
    for basin in config.store.basins:
        yield _basin(basin)


def _basin(basin: BasinTable) -> str:
    creators = {"an append": basin.create_stream_on_append, "a read": basin.create_stream_on_read}
    by = " or ".join(name for name, does in creators.items() if does)
    created = f"{by} creates a missing stream" if by else "streams must be created first"
    kept = f"for {_duration(basin.retention_seconds)}" if basin.retention_seconds else "for ever"
    if basin.retention_bytes:
        kept += f" or until {basin.retention_bytes:,} bytes came after them"
    return f"Basin {basin.name}: {created}; records are kept {kept}; timestamping mode {basin.timestamping_mode}"


def _duration(seconds: int) -> str:
    """Return a duration in the largest unit that divides it."""
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            count = seconds // size
            return f"{count} {name}{'s' if count != 1 else ''}"
    return f"{seconds} seconds"
