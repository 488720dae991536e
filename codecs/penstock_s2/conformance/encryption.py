"""Cases about the encryption of records at rest (S2 fact sheet, 5.5)."""

from __future__ import annotations

import functools
from typing import Any, Final

from penstock.protocols.conformance import Cases, require_equal
from penstock_s2.conformance.session import (
    ACCOUNT,
    EVENTS,
    PROTOBUF,
    SESSION,
    S2TestSession,
    append_frame,
    append_input,
    b64,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_CIPHERS: Final = ("aegis-256", "aes-256-gcm")
_KEY, _OTHER = (("s2-encryption-key", b64(bytes([number]) * 32)) for number in (1, 2))
_RECORD: Final = {"body": "in private", "headers": [["name", "value"]]}


async def _make_stream(session: S2TestSession, cipher: str, **config: object) -> None:
    """Create a stream in a new basin whose streams get the cipher."""
    await session.make_basin({"stream_cipher": cipher, **config})
    response = await session.expect(201, "PUT", session.path(), {})
    require_equal(response["cipher"], cipher)


async def ciphers_of_streams(session: S2TestSession, cipher: str) -> None:
    """A stream has the cipher that its basin had when it was created, and keeps it."""
    await _make_stream(session, cipher)
    path = f"/v1/basins/{session.basin}"
    require_equal((await session.expect(200, "GET", path, None, ACCOUNT))["stream_cipher"], cipher)
    changed = await session.expect(200, "PATCH", path, {"stream_cipher": None}, ACCOUNT)
    require_equal(changed["stream_cipher"], None)
    plain = await session.expect(201, "POST", "/v1/streams", {"stream": f"{session.stream}-plain"})
    require_equal(plain["cipher"], None)
    listing = await session.expect(200, "GET", "/v1/streams")
    require_equal([each["cipher"] for each in listing["streams"]], [cipher, None])
    require_equal("cipher" in await session.expect(200, "GET", session.path()), False)


async def appends_and_reads_with_the_key(session: S2TestSession, cipher: str) -> None:
    """With the key, appends and reads of every kind are as those without encryption, and so are conditions, commands
    and bounds."""
    await _make_stream(session, cipher, create_stream_on_append=True)
    session.stream += "-new"
    batch = {"records": [_RECORD], "match_seq_num": 0}
    await session.expect(200, "POST", session.records, batch, [_KEY])
    require_equal(await session.expect(412, "POST", session.records, batch, [_KEY]), {"seq_num_mismatch": 1})
    require_equal((await session.append_protobuf(append_input(b"x" * 92), [_KEY])).status, 200)
    async with session.exchange("POST", SESSION, [_KEY]) as exchange:
        await exchange.send(append_frame(b"x" * 92))
        require_equal(await exchange.acks(1), [(2, 3)])
    bodies = ["in private", "x" * 92, "x" * 92]
    records = (await session.read(200, [_KEY], seq_num=0))["records"]
    require_equal(([each["body"] for each in records], records[0]["headers"]), (bodies, [["name", "value"]]))
    protobuf = (await session.read_protobuf([_KEY], seq_num=0)).records
    require_equal([each.body.decode() for each in protobuf], bodies)
    for media in (EVENTS, SESSION):
        require_equal(await session.read_all_bodies(media, _KEY, seq_num=0, count=3), bodies)
    for most, count in ((99, 0), (100, 1), (199, 1), (200, 2)):
        require_equal(len((await session.read(200, [_KEY], seq_num=1, bytes=most))["records"]), count)
    fence = {"records": [{"headers": [["", "fence"]], "body": "token"}]}
    await session.expect(200, "POST", session.records, fence, [_KEY])
    fenced = {"records": [_RECORD], "fencing_token": "x"}
    response = await session.expect(412, "POST", session.records, fenced, [_KEY])
    require_equal(response, {"fencing_token_mismatch": "token"})


async def missing_and_malformed_keys(session: S2TestSession, cipher: str) -> None:
    """Without a key, and with one that is not base64 of 32 bytes, requests and sessions are status 400, bad_header; the
    tail needs none."""
    await _make_stream(session, cipher)
    for key in ("", "!!!!", b64(b"x" * 31), b64(b"x" * 33), "A" * 45):
        head = [("s2-encryption-key", key)]
        await session.expect_refusal("400 bad_header", "POST", session.records, {"records": [_RECORD]}, head)
        types = (("content-type", PROTOBUF), ("content-type", SESSION))
        for more, body in ((types[0], append_input(b"2")), (types[1], append_frame(b"3"))):
            await session.expect_refusal("400 bad_header", "POST", session.records, body, [*head, more])
        for more in (("accept", "*/*"), ("accept", EVENTS), types[1]):
            await session.expect_refusal("400 bad_header", "GET", session.records, None, [*head, more], seq_num=0)
    await session.require_tail(0)


async def wrong_keys(session: S2TestSession, cipher: str) -> None:
    """A read with another key than that of the record is status 400, decryption_failed, or ends so."""
    await _make_stream(session, cipher)
    async with session.exchange("GET", SESSION, [_OTHER], seq_num=0) as exchange:
        require_equal((await exchange.next())[0], "tail")
        await session.expect(200, "POST", session.records, {"records": [_RECORD]}, [_KEY])
        require_equal(_error_code(await exchange.next()), "decryption_failed")
    await session.expect_refusal("400 decryption_failed", "GET", session.records, None, [_OTHER], seq_num=0)
    for media in (EVENTS, SESSION):
        async with session.exchange("GET", media, [_OTHER], seq_num=0) as exchange:
            require_equal(_error_code(await exchange.next()), "decryption_failed")


def _error_code(item: tuple[str, Any]) -> str | None:
    """Return the code of an error that ends a read, or None."""
    return item[1]["code"] if item[0] == "error" else None


async def keys_of_plain_streams(session: S2TestSession) -> None:
    """A stream without a cipher ignores keys, but for one that is too long for any."""
    await session.create()
    for key in (_KEY, _OTHER, ("s2-encryption-key", "!!!!")):
        await session.expect(200, "POST", session.records, {"records": [_RECORD]}, [key])
    require_equal(len((await session.read(seq_num=0))["records"]), 3)
    too_long = [("s2-encryption-key", "A" * 45)]
    await session.expect_refusal("400 bad_header", "POST", session.records, {"records": [_RECORD]}, too_long)


for _cipher in _CIPHERS:
    for _run in (ciphers_of_streams, appends_and_reads_with_the_key, missing_and_malformed_keys, wrong_keys):
        CASES.add(
            f"{_run.__name__}_{_cipher}",
            "encryption",
            f"{_cipher}: {' '.join((_run.__doc__ or '').split())}",
            functools.partial(_run, cipher=_cipher),
        )
CASES.case("encryption")(keys_of_plain_streams)
