"""Parameters of a request's head: media types, basin, bounds of a read (S2 fact sheet 1.1, 1.2, 5.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.operations import FromSeqNum, FromTailOffset, FromTimestamp, Read, Start
from penstock.model.records import U64_MAX, StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.http.exchange import Request
from penstock_s2.codec.limits import S2_MAX_UNARY_WAIT_SECONDS
from penstock_s2.codec.media import Media, media_type
from penstock_s2.codec.names import decode_path_segment, invalid_header
from penstock_s2.front.settings import S2Settings

__all__ = ["accepted", "basin_of", "media_of", "number", "query_of", "read_of", "stream_of"]

_PLAIN_QUERY: Final = re.compile(r"[\w.~-]+=[\w.~-]*(&[\w.~-]+=[\w.~-]*){0,9}", re.ASCII)
"""Queries of a few pairs without escapes: the library takes 6 us for each."""
_ONCE: Final = (
    *("seq_num", "timestamp", "tail_offset", "clamp", "count", "bytes", "until", "wait"),
    *("prefix", "start_after", "limit", "s2-basin", "set", "start", "end", "interval"),
)
_NUMBER: Final = re.compile(r"\+?0*[0-9]{1,20}")
_MAX_WAIT: Final = (1 << 32) - 1


def media_of(request: Request) -> Media:
    """Return the media type of the request's body; on a GET, S2S asks for a read session."""
    return media_type(request.header("content-type"))


def accepted(request: Request) -> Media:
    """Return the media type that the client accepts; anything absent or unknown means JSON (fact sheet 1.2)."""
    media = media_type(request.header("accept"))
    return Media.JSON if media is Media.OTHER else media


def query_of(request: Request) -> dict[str, str]:
    """Return the query's parameters, percent-decoded. Raises BAD_QUERY if one that has a meaning is repeated.

    Raw bytes above 127 (HTTP/2 may bring them, as latin-1 text) are decoded as UTF-8, as in a path; bytes that are not
    UTF-8 become U+FFFD, as in S2.
    """
    if _PLAIN_QUERY.fullmatch(request.query):
        pairs = [(name, value) for name, _, value in (pair.partition("=") for pair in request.query.split("&"))]
    else:
        pairs = _decoded(request.query)
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        names = [name for name, _ in pairs]
        for name in _ONCE:
            if names.count(name) > 1:
                raise fail(FailureCode.BAD_QUERY, f"Failed to deserialize query string: duplicate field `{name}`")
    return parameters


def _decoded(query: str) -> list[tuple[str, str]]:
    try:
        text = query.encode("latin-1").decode("utf-8", "replace")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise fail(FailureCode.BAD_QUERY, f"Failed to deserialize query string: {error}") from None


def basin_of(request: Request, parameters: Mapping[str, str], settings: S2Settings) -> str:
    """Return the request's basin: by path, header `s2-basin`, host, query parameter `s2-basin`, or the default.

    Host and query parameter are for browsers, whose EventSource cannot send headers (fact sheet 3).
    """
    if (segment := parameters.get("basin")) is not None:
        return validate_basin_name(decode_path_segment(segment), FailureCode.BAD_PATH)
    name = request.header("s2-basin")
    if name is None:
        host = request.authority.rsplit(":", 1)[0].lower()
        for suffix in settings.basin_host_suffixes:
            if host.endswith(suffix) and len(host) > len(suffix):
                name = host[: -len(suffix)]
                break
    if name is not None:
        try:
            return validate_basin_name(name, FailureCode.BAD_HEADER)
        except OperationFailed as error:
            raise invalid_header("s2-basin", error.failure.message) from None
    if "s2-basin" in request.query and (named := query_of(request).get("s2-basin")) is not None:
        return validate_basin_name(named, FailureCode.BAD_QUERY)
    if settings.default_basin is not None:
        return settings.default_basin
    raise fail(FailureCode.BAD_HEADER, "Missing header `s2-basin`")


def stream_of(request: Request, parameters: Mapping[str, str], settings: S2Settings) -> StreamRef:
    """Return the request's stream."""
    basin = basin_of(request, parameters, settings)
    return StreamRef(basin, validate_stream_name(decode_path_segment(parameters["stream"]), FailureCode.BAD_PATH))


def number(query: Mapping[str, str], name: str, most: int = U64_MAX) -> int | None:
    """Return a number of the query, from 0 to `most`; None if it is absent. Raises BAD_QUERY."""
    text = query.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or (value := int(text.lstrip("+0") or "0")) > most:
        raise fail(FailureCode.BAD_QUERY, f"Failed to deserialize query string: {name}: invalid digit found in string")
    return value


def _start(query: Mapping[str, str]) -> Start:
    kinds: dict[str, Callable[[int], Start]] = {
        "seq_num": FromSeqNum,
        "timestamp": FromTimestamp,
        "tail_offset": FromTailOffset,
    }
    starts = [kind(value) for name, kind in kinds.items() if (value := number(query, name)) is not None]
    if len(starts) > 1:
        message = "only one of seq_num, timestamp, or tail_offset can be provided"
        raise fail(FailureCode.INVALID, message)
    return starts[0] if starts else FromTailOffset(0)


def read_of(
    stream: StreamRef, query: Mapping[str, str], create_config: StreamConfig | None, *, unary: bool = False
) -> Read:
    """Return the read that a query asks for: a session has only the bounds that the client gave, a `unary` read also
    those of one answer."""
    start = _start(query)
    clamp = query.get("clamp", "false")
    if clamp not in ("true", "false"):
        message = "Failed to deserialize query string: clamp: provided string was not `true` or `false`"
        raise fail(FailureCode.BAD_QUERY, message)
    until = number(query, "until")
    if until is not None and isinstance(start, FromTimestamp) and start.timestamp >= until:
        raise fail(FailureCode.INVALID, "start `timestamp` exceeds or equal to `until`")
    count, max_bytes, wait = number(query, "count"), number(query, "bytes"), number(query, "wait", _MAX_WAIT)
    if unary:
        count, max_bytes = _at_most(count, MAX_BATCH_RECORDS), _at_most(max_bytes, MAX_BATCH_BYTES)
        wait = min(wait or 0, S2_MAX_UNARY_WAIT_SECONDS)
    return Read(
        stream=stream,
        start=start,
        clamp=clamp == "true",
        count=count,
        max_bytes=max_bytes,
        until=until,
        wait=wait,
        create_config=create_config,
    )


def _at_most(value: int | None, most: int) -> int:
    return most if value is None else min(value, most)
