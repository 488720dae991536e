"""Requests that a server must refuse (S2 fact sheet, 1.3 to 1.5, 5, 6).

Each case is a generator of requests: the status and the code that it must have, its method, its path, in which {} is
an empty stream, and its body and headers if it has any. The stream must be empty in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

from penstock.protocols.conformance import Cases
from penstock_s2.conformance.session import (
    ACCOUNT,
    BASE64,
    EVENTS,
    JSON,
    PROTOBUF,
    SESSION,
    S2TestSession,
    append_input,
    b64,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_STREAM: Final = "/v1/streams/{}"
_RECORDS: Final = "/v1/streams/{}/records"
_TAIL: Final = "/v1/streams/{}/records/tail"
_IS_JSON: Final = (("content-type", JSON),)
_IS_PROTOBUF: Final = (("content-type", PROTOBUF),)
_LONGEST: Final = "x" * 513
_RECORD: Final = {"records": [{"body": "x"}]}
_Requests = Iterator[tuple[Any, ...]]


def _refusals(clause: str) -> Callable[[Callable[[], _Requests]], None]:
    """Return a decorator that adds requests as a case."""

    def add(requests: Callable[[], _Requests]) -> None:
        async def run(session: S2TestSession) -> None:
            await session.create()
            for expected, method, path, *arguments in requests():
                await session.expect_refusal(expected, method, path.format(quote(session.stream)), *arguments)
            await session.require_tail(0)

        CASES.add(requests.__name__, clause, " ".join((requests.__doc__ or "").split()), run)

    return add


@_refusals("tail")
def unknown_basin() -> _Requests:
    """An unknown basin is status 404, basin_not_found."""
    basin, name = (("s2-basin", "conform-no-such-basin"),), "conform-no-such-basin"
    for path in (_TAIL, _RECORDS, "/v1/streams", "/v1/streams?prefix=a"):
        yield "404 basin_not_found", "GET", path, None, basin
    yield "404 basin_not_found", "POST", _RECORDS, _RECORD, basin
    yield "404 basin_not_found", "POST", _RECORDS, b"", (*basin, ("content-type", SESSION))
    yield "404 basin_not_found", "POST", "/v1/streams", {"stream": "s"}, basin
    for method, body in (("PATCH", {}), ("GET", None), ("DELETE", None)):
        yield "404 basin_not_found", method, f"/v1/basins/{name}", body, ACCOUNT


@_refusals("tail")
def invalid_stream_names() -> _Requests:
    """A name that is too long, ".", "..", no UTF-8, or has a zero is status 400: bad_path, or bad_json in a body."""
    for name in ("%2E", "%2E%2E", _LONGEST, quote("ü" * 257), "a%00b", "%FF"):
        yield "400 bad_path", "GET", f"/v1/streams/{name}/records/tail"
    for name in ("", ".", "..", _LONGEST, "ü" * 257):
        yield "400 bad_json", "POST", "/v1/streams", {"stream": name}


@_refusals("append")
def body_of_another_type() -> _Requests:
    """A body that is not said to be JSON where it must be is status 400, bad_json."""
    for media in ("", "text/plain", "application/x-www-form-urlencoded"):
        for method, path in (("POST", _RECORDS), ("POST", "/v1/streams"), ("PATCH", _STREAM)):
            yield "400 bad_json", method, path, b'{"records":[{}]}', [("content-type", media)]
    yield "400 bad_json", "PUT", _STREAM, b"{}", [("content-type", "text/plain")]


@_refusals("append")
def append_without_json() -> _Requests:
    """Malformed JSON, JSON that is no batch, and a key twice are status 400, bad_json."""
    for text in (b"", b"{", b"[]", b"null", b"{}", b'{"record":[]}', b'{"records":null}', b'{"records":[]} trailing'):
        yield "400 bad_json", "POST", _RECORDS, text, _IS_JSON
    for records in (b"{}", b"[1]", b'[{"body":7}]', b'[{"body":"\xff"}]', b'[{"headers":[["a"]]}]'):
        yield "400 bad_json", "POST", _RECORDS, b'{"records":%b}' % records, _IS_JSON
    for number in (b"-1", b"1.5", b"18446744073709551616"):
        yield "400 bad_json", "POST", _RECORDS, b'{"records":[{"timestamp":%b}]}' % number, _IS_JSON
    for more in (b'"match_seq_num":"0"', b'"records":[]', b'"match_seq_num":0,"match_seq_num":0'):
        yield "400 bad_json", "POST", _RECORDS, b'{"records":[{"body":"a"}],%b}' % more, _IS_JSON
    yield "400 bad_json", "POST", _RECORDS, b'{"records":[{"body":"a","body":"b"}]}', _IS_JSON


@_refusals("append")
def append_without_protobuf() -> _Requests:
    """Malformed protobuf is status 400, bad_proto."""
    for data in (b"\xff", b"\x0a\x05abc", b"\x1a\x02\xff\xfe"):
        yield "400 bad_proto", "POST", _RECORDS, data, _IS_PROTOBUF


@_refusals("append")
def append_of_nothing() -> _Requests:
    """A batch without records is status 422."""
    yield "422 invalid", "POST", _RECORDS, {"records": []}
    yield "422 invalid", "POST", _RECORDS, b"", _IS_PROTOBUF


@_refusals("append")
def longest_token() -> _Requests:
    """A fencing token of more than 36 bytes is status 422, and as a condition in JSON 400, bad_json."""
    for token in ("t" * 37, "ü" * 19):
        yield "422 invalid", "POST", _RECORDS, {"records": [{"headers": [["", "fence"]], "body": token}]}
        yield "422 invalid", "POST", _RECORDS, append_input(b"x", fencing_token=token), _IS_PROTOBUF
        yield "400 bad_json", "POST", _RECORDS, {**_RECORD, "fencing_token": token}


@_refusals("append")
def unknown_command() -> _Requests:
    """A record whose only header has an empty name is a command. An unknown one, one of several headers, and a trim
    without 8 bytes are status 422, and nothing of their batch is appended."""
    for headers in ([["", "bogus"]], [["", "fence"], ["a", "b"]]):
        yield "422 invalid", "POST", _RECORDS, {"records": [{"body": "good"}, {"headers": headers, "body": "x"}]}
    for size in (0, 7, 9):
        command = {"headers": [["", b64(b"trim")]], "body": b64(bytes(size))}
        yield "422 invalid", "POST", _RECORDS, {"records": [command]}, BASE64


@_refusals("append")
def invalid_base64() -> _Requests:
    """A body or a header that is no base64 as said is status 422."""
    for bad in ("!", "%%%", "YQ", "YQ=", "Y Q==", "YQ==YQ==", "-_8="):
        for record in ({"body": bad}, {"headers": [[bad, ""]]}, {"headers": [["YQ==", bad]]}):
            yield "422 invalid", "POST", _RECORDS, {"records": [record]}, BASE64


@_refusals("append")
def unknown_format() -> _Requests:
    """An unknown s2-format is status 400, bad_header."""
    form = ("s2-format", "hex")
    yield "400 bad_header", "POST", _RECORDS, _RECORD, [form]
    for media in (JSON, EVENTS):
        yield "400 bad_header", "GET", _RECORDS, None, [form, ("accept", media)]


@_refusals("read")
def two_starts() -> _Requests:
    """Two starts are status 422; a number that is none, a key twice, and a clamp that is neither true nor false are
    status 400, bad_query."""
    yield "422 invalid", "GET", f"{_RECORDS}?seq_num=0&tail_offset=1"
    for name in ("seq_num", "timestamp", "tail_offset", "count", "bytes", "until", "wait"):
        for number in ("abc", "-1", "1.5", "", "18446744073709551616", "0x1", "%ff"):
            yield "400 bad_query", "GET", f"{_RECORDS}?{name}={number}"
    for more in ("seq_num=1", "clamp=1", "clamp=True", "clamp=yes", "clamp="):
        yield "400 bad_query", "GET", f"{_RECORDS}?seq_num=0&{more}"


@_refusals("events")
def bad_last_event_id() -> _Requests:
    """A malformed last-event-id is status 400, bad_header, as JSON."""
    for bad in ("x", "1:2:3", "1,2", "1,2,3,4", "-1,2,3", "1,2,x", "18446744073709551616,1,1"):
        yield "400 bad_header", "GET", _RECORDS, None, [("accept", EVENTS), ("last-event-id", bad)]


@_refusals("streams")
def list_with_bad_bounds() -> _Requests:
    """A bound that no name can have, a limit that is no number, and a key twice are status 400, bad_query."""
    bounds = [f"{name}={bad}" for name in ("prefix", "start_after") for bad in (_LONGEST, "a%00")]
    for query in ("limit=x", "limit=1&limit=2", *bounds):
        yield "400 bad_query", "GET", f"/v1/streams?{query}"
        yield "400 bad_query", "GET", f"/v1/basins?{query}", None, ACCOUNT


@_refusals("streams")
def invalid_configurations() -> _Requests:
    """A retention of 0 s is status 422, and a malformed configuration 400, bad_json; nothing is created."""
    zero = {"retention_policy": {"age": 0}}
    yield "422 invalid", "PUT", f"{_STREAM}-new", zero
    yield "422 invalid", "PATCH", _STREAM, zero
    yield "422 invalid", "POST", "/v1/streams", {"stream": "conform-new", "config": zero}
    yield "400 bad_header", "POST", "/v1/streams", {"stream": "conform-new"}, [("s2-request-token", "t" * 37)]
    yield "400 bad_json", "PATCH", _STREAM, b"", _IS_JSON
    for bad in (b'{"age":-1}', b'{"age":"x"}', b'{"age":5,"age":6}'):
        yield "400 bad_json", "PUT", f"{_STREAM}-new", b'{"retention_policy":%b}' % bad, _IS_JSON
    for bad in (b"{", b"null", b'{"timestamping":{"mode":"sometimes"}}', b'{"delete_on_empty":{"min_age_secs":-5}}'):
        yield "400 bad_json", "PUT", f"{_STREAM}-new", bad, _IS_JSON
    for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        yield "404 stream_not_found", method, f"{_STREAM}-new", body
    yield "404 stream_not_found", "GET", "/v1/streams/conform-new"


@_refusals("basins")
def invalid_basins() -> _Requests:
    """A basin's name has 8 to 48 characters of a-z, 0-9 and hyphens, with none at either end: another is status 400,
    bad_path, bad_json or bad_header as it stands. So is a cipher that there is not."""
    for name in ("AB", "short-7", "x" * 49, "Upper-Case", "-begins-badly", "ends-badly-", "under_score_"):
        yield "400 bad_json", "POST", "/v1/basins", {"basin": name}, ACCOUNT
        yield "400 bad_path", "PUT", f"/v1/basins/{name}", {}, ACCOUNT
        yield "400 bad_path", "GET", f"/v1/basins/{name}", None, ACCOUNT
        yield "400 bad_header", "GET", _TAIL, None, [("s2-basin", name)]
    config = {"config": {"stream_cipher": "rot13"}}
    yield "400 bad_json", "PUT", "/v1/basins/conform-rot13", config, ACCOUNT
    yield "400 bad_json", "POST", "/v1/basins", {"basin": "conform-rot13", **config}, ACCOUNT
    yield "404 basin_not_found", "GET", "/v1/basins/conform-rot13", None, ACCOUNT
