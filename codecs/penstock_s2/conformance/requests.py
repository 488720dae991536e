"""Cases about requests of any kind, and about the tail (S2 fact sheet, 1.1, 1.4, 1.5)."""

from __future__ import annotations

import gzip
from typing import Final

import zstandard

from penstock.net.http.client import HttpVersion
from penstock.protocols.conformance import Cases, NotApplicable, require, require_equal
from penstock_s2.conformance.session import (
    ACCOUNT,
    EVENTS,
    JSON,
    PROTOBUF,
    SESSION,
    S2TestSession,
    append_input,
    position,
    value_of,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_ODD_NAME: Final = "/a b%ü?#&amp;=+流//%2F..."
_LONGEST_NAME: Final = 512


@CASES.case("tail")
async def health(session: S2TestSession) -> None:
    """/health and /ping are status 200 and say OK."""
    for path in ("/health", "/ping"):
        response = await session.request("GET", path, None, ACCOUNT)
        require_equal((response.status, response.body), (200, b"OK"))


@CASES.case("tail")
async def tail_of_an_empty_stream(session: S2TestSession) -> None:
    """The tail of an empty stream is 0."""
    await session.create()
    require_equal(await session.expect(200, "GET", session.path("/records/tail")), {"tail": position(0)})


@CASES.case("tail")
async def tail_of_an_unknown_stream(session: S2TestSession) -> None:
    """An unknown stream is status 404, stream_not_found."""
    await session.needs_create("create_stream_on_read")
    await session.expect_refusal("404 stream_not_found", "GET", session.path("/records/tail"))


@CASES.case("tail")
async def missing_basin(session: S2TestSession) -> None:
    """A request to a basin that names none is status 400, bad_header."""
    await session.create()
    response = await session.request("GET", session.path("/records/tail"), None, ACCOUNT)
    if response.status in (200, 404):
        raise NotApplicable("the server chooses a basin")
    require_equal((response.status, value_of(response.body).get("code")), (400, "bad_header"))


@CASES.case("tail")
async def names_with_a_slash(session: S2TestSession) -> None:
    """A name of any characters, of 512 bytes at most, is percent-encoded as one segment of the path."""
    name = session.stream + _ODD_NAME
    session.stream = name + "x" * (_LONGEST_NAME - len(name.encode()))
    await session.create("x")
    await session.require_tail(1)
    require_equal(await session.bodies(seq_num=0), ["x"])
    listing = await session.expect(200, "GET", "/v1/streams", None, (), prefix=session.stream)
    require_equal([each["name"] for each in listing["streams"]], [session.stream])
    response = await session.request("GET", session.path("/records/tail").replace("%2F", "/", 1))
    require_equal((response.status, response.body), (404, b""))


@CASES.case("tail")
async def unknown_method(session: S2TestSession) -> None:
    """A method that the records lack is status 405 without a body, and Allow names the others; HEAD is as GET, without
    the body."""
    await session.create("x")
    response = await session.request("HEAD", session.records, seq_num=0)
    require_equal((response.status, response.header("content-type"), response.body), (200, JSON, b""))
    response = await session.request("DELETE", session.records)
    require_equal((response.status, response.body), (405, b""))
    allowed = {method.strip() for method in (response.header("allow") or "").split(",")}
    require(allowed >= {"GET", "HEAD", "POST"}, "Allow with GET, HEAD and POST", allowed)


@CASES.case("tail")
async def unknown_paths(session: S2TestSession) -> None:
    """A path that the API lacks is status 404 without a body."""
    for path in ("/v1", "/v2/streams", "/v1//streams", "/v1/streams/", session.path("/records/tail/")):
        response = await session.request("GET", path)
        require_equal((path, response.status, response.body), (path, 404, b""))


@CASES.case("tail")
async def both_versions_of_http(session: S2TestSession) -> None:
    """One port serves HTTP/1.1 and HTTP/2: in plaintext by the client's first bytes, over TLS by ALPN."""
    await session.create()
    head = [("s2-basin", session.basin)]
    for version in (HttpVersion.H1, HttpVersion.H2):
        async with session.server.http("s2", version) as client:
            response = await client.request("GET", session.path("/records/tail"), head, seconds=session.server.patience)
            require_equal((response.status, value_of(response.body)), (200, {"tail": position(0)}))


@CASES.case("tail")
async def compressed_requests(session: S2TestSession) -> None:
    """The body of a request may be gzip or zstd; another coding is status 415."""
    await session.create()
    packers = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
    text = b'{"records":[{"body":"%b"}]}' % (b"text " * 1000)
    for name, pack in packers.items():
        coding = ("content-encoding", name)
        await session.expect(200, "POST", session.records, pack(text), [("content-type", JSON), coding])
        response = await session.append_protobuf(pack(append_input(b"text " * 1000)), [coding])
        require_equal(response.status, 200)
        await session.expect_refusal("400 bad_json", "POST", session.records, text, [("content-type", JSON), coding])
    require_equal(await session.bodies(seq_num=0), ["text " * 1000] * 4)
    response = await session.request(
        "POST", session.records, text, [("content-type", JSON), ("content-encoding", "br")]
    )
    require_equal(response.status, 415)


@CASES.case("tail")
async def compressed_responses(session: S2TestSession) -> None:
    """A response that is not small may be gzip if the client accepts that; events and sessions never are."""
    await session.create("compress me " * 1000)
    accepted = [("accept-encoding", "gzip")]
    response = await session.request("GET", session.records, None, accepted, seq_num=0)
    plain = gzip.decompress(response.body) if response.header("content-encoding") == "gzip" else response.body
    require_equal(value_of(plain)["records"][0]["body"], "compress me " * 1000)
    response = await session.request("GET", session.records, None, [("accept", PROTOBUF)], seq_num=0)
    require_equal(response.header("content-encoding"), None)
    for media in (EVENTS, SESSION):
        async with session.exchange("GET", media, accepted, seq_num=0, count=1) as exchange:
            require_equal(exchange.header("content-encoding"), None)
