"""What `penstock check` says."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from penstock.cli.access_report import access_lines, pravega_clients, s2_clients
from penstock.cli.recorder_report import recorder_lines
from penstock.cli.route_report import back_lines, route_parts
from penstock.cli.tls_report import clients, tls_lines
from penstock.config import (
    Basin,
    Config,
    ControllerListener,
    S2Listener,
    S3PListener,
    S3PLoss,
    SegmentListener,
    SegmentLoss,
)
from penstock.config.advice import advice

__all__ = ["report"]

WIDTH = 110


def report(config: Config, source: str) -> str:
    """Plain words for what would run with `config`; `source` is where it was read from."""
    listeners = config.listeners
    parts = [
        (f"{source} is valid. With it, this would run:", []),
        ("Processes", list(_processes(config))),
        ("Listeners", list(_listeners(config))),
        ("TLS", list(tls_lines(config))),
        ("Access", list(access_lines(config))),
        ("Backs", list(back_lines(config))),
        *route_parts(config),
        ("Names", [*_each(listeners.s3p, _s3p_names), *_each(listeners.segment, _segment_names)]),
        ("What S3P cannot carry", list(_each(listeners.s3p, _s3p_losses))),
        ("What segments cannot carry", list(_each(listeners.segment, _segment_losses))),
        ("Store", list(_store(config))),
        ("Recorder", list(recorder_lines(config.recorder))),
        ("Traces", [] if config.tracing is None else [config.tracing.in_words]),
        ("Faults, on purpose", [fault.in_words for fault in config.faults]),
        ("Shutdown", [f"On SIGTERM or SIGINT clients have {config.drain.deadline_seconds:g} s to finish."]),
        ("Attention", [("INSECURE: " if insecure else "") + text for insecure, text in advice(config)]),
    ]
    return "\n\n".join(_part(title, lines) for title, lines in parts if lines or title.endswith(":"))


L = TypeVar("L", S2Listener, S3PListener, SegmentListener, ControllerListener)


def _each(listeners: tuple[L, ...], said: Callable[[L], Iterable[str]]) -> Iterator[str]:
    """What is said of each listener of a kind, with its name where it has one."""
    for listener in listeners:
        before = f"{listener.name}: " if listener.name else ""
        yield from (before + line for line in said(listener))


def _processes(config: Config) -> Iterator[str]:
    if config.workers > 1:
        yield f"{config.workers} workers serve clients; one more process has the store"


def _listeners(config: Config) -> Iterator[str]:
    listeners = config.listeners
    yield from _each(listeners.s2, partial(_s2, config)) if listeners.s2 else ["S2: off"]
    yield from _each(listeners.s3p, _s3p) if listeners.s3p else ["S3P: off"]
    yield from _each(listeners.segment, partial(_segment, config)) if listeners.segment else ["Segments: off"]
    controllers = _each(listeners.controller, partial(_controller, config))
    yield from controllers if listeners.controller else ["Pravega's controller: off"]
    if not config.management.enabled:
        yield "Management: off"
    else:
        tokens = len(config.management.auth_tokens)
        who = f"those with one of {tokens} bearer tokens" if tokens else "anybody, without a token"
        who = clients(config.management, who)
        carrier = "HTTPS" if config.management.tls_certificate else "HTTP"
        what = f"health, routes, positions, cut-overs, recordings; {carrier}"
        yield f"Management ({what}) on {config.management.bind}, for {who}"


def _part(title: str, lines: list[str]) -> str:
    wrapped = (textwrap.fill(line, WIDTH, initial_indent="  - ", subsequent_indent="    ") for line in lines)
    return "\n".join([title, *wrapped])


def _s2(config: Config, listener: S2Listener) -> Iterator[str]:
    carrier = "HTTPS" if listener.tls_certificate else "HTTP"
    yield f"S2 by {carrier} (S2S, SSE, JSON, protobuf; HTTP/1.1 and HTTP/2) on {listener.bind}"
    yield f"S2 clients: {clients(listener, s2_clients(config, listener))}"
    unnamed = f"meant for basin {listener.default_basin}" if listener.default_basin else "refused"
    yield f"S2 requests that name no basin: {unnamed}"
    yield f"S2 in browsers: pages of {'any origin' if listener.cors else 'the same origin only'}"
    if listener.sse_dialect != "s2":
        yield f"SSE is spelled in the dialect {listener.sse_dialect!r}, which S2's own clients do not read"


def _s3p(listener: S3PListener) -> Iterator[str]:
    carrier = " by TLS" if listener.tls_certificate else ""
    yield f"S3P 0.2.0{carrier} on {listener.bind}, for {clients(listener, 'anybody')}"


_SEGMENTS = {
    "separate": "each segment is a stream of its own, and order holds within it only",
    "single": "it gets one segment all the same: one order, for the clients of all protocols",
    "refuse": "it is not created",
}


def _segment(config: Config, listener: SegmentListener) -> Iterator[str]:
    carrier = "TLS" if listener.tls_certificate else "TCP"
    yield f"Segments (Pravega's protocol, wire versions 5 to 16, and the draft) by {carrier} on {listener.bind}"
    yield f"Clients of segments: {clients(listener, pravega_clients(config, listener))}"


def _controller(config: Config, listener: ControllerListener) -> Iterator[str]:
    carrier = "HTTPS" if listener.tls_certificate else "HTTP"
    who = clients(listener, pravega_clients(config, listener))
    yield f"Pravega's controller (gRPC by {carrier}/2) on {listener.bind}, for {who}"
    where = listener.advertise or "the segment listener, on the host by which they reached the controller"
    yield f"The controller sends its clients to {where}"
    yield f"A stream that is to have several segments: {_SEGMENTS[listener.segments]}"


def _s3p_names(listener: S3PListener) -> Iterator[str]:
    if listener.names == "fixed":
        yield f"An S3P name is a stream of basin {listener.basin}, the only one that S3P clients see"
    else:
        yield "An S3P name is basin/stream, parted at the first slash; every basin is there for S3P clients"
    yield "What an S2 name cannot hold stands as %XX in it: bytes that are not UTF-8, NUL, and % itself (docs/names.md)"


def _segment_names(listener: SegmentListener) -> Iterator[str]:
    yield (
        "A scope is the basin of its name; the streams of a scope whose name is no basin's are in basin "
        f"{listener.basin}, as scope/stream"
    )


_LOSSES = {
    "refuse": "refused: the read fails and names the record",
    "envelope": "carried whole, in an envelope inside the body (docs/loss.md)",
    "drop": "left out, and counted in the log",
}


def _s3p_losses(listener: S3PListener) -> Iterator[str]:
    yield from _losses(listener.loss)
    yield "everything else: kept, byte for byte"


def _segment_losses(listener: SegmentListener) -> Iterator[str]:
    yield from _losses(listener.loss)
    yield "everything else: kept, each body as one event"
    yield "a record's bytes are fixed when it is appended: enveloped or not, it stays so, whatever is configured later"


def _losses(loss: S3PLoss | SegmentLoss) -> Iterator[str]:
    headers = "the headers are dropped, the body is kept" if loss.headers == "drop" else None
    yield f"records with headers: {headers or _LOSSES[loss.headers]}"
    yield f"records with an empty body: {_LOSSES[loss.empty_body]}"
    yield f"command records (fence, trim): {_LOSSES[loss.command_records]}"


def _store(config: Config) -> Iterator[str]:
    directory = Path(config.store.directory).absolute()
    state = "is there" if directory.is_dir() else "would be created"
    yield f"SQLite in {directory}, which {state}; an acknowledgement means on disk"
    for basin in config.store.basins:
        yield _basin(basin)


def _basin(basin: Basin) -> str:
    creators = {"an append": basin.create_stream_on_append, "a read": basin.create_stream_on_read}
    by = " or ".join(name for name, does in creators.items() if does)
    created = f"{by} creates a missing stream" if by else "streams must be created first"
    kept = f"for {_duration(basin.retention_seconds)}" if basin.retention_seconds else "for ever"
    return f"Basin {basin.name}: {created}; records are kept {kept}; timestamps are {basin.timestamping_mode}"


def _duration(seconds: int) -> str:
    """The largest unit that gives a whole number."""
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            count = seconds // size
            return f"{count} {name}{'s' if count != 1 else ''}"
    return f"{seconds} seconds"
