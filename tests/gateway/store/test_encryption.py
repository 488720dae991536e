"""Streams with a cipher: what is on disk, and who can read it."""

import base64
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import NOW, appending, batches, fence, trim_record

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import AppendBytes, Merge, ReadBytes
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    EnsureBasin,
    FromSeqNum,
    FromTimestamp,
    GetBasinConfig,
    GetStreamConfig,
    ListStreams,
    Locate,
    Read,
)
from penstock.model.record_encoding import encode_records
from penstock.model.records import Columns, Header, Headers, Record, StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, Cipher, StreamConfig
from penstock.store.schema import FILE_NAME

C = FailureCode
CIPHERS = pytest.mark.parametrize("cipher", list(Cipher), ids=lambda cipher: cipher.value)
KEY, OTHER = (EncryptionKey(base64.b64encode(bytes([n]) * 32).decode()) for n in (1, 2))
SECRET = StreamRef("basin-secret", "stream")
WRONG_KEY = C.DECRYPTION_FAILED, "record decryption failed"
HEADERS = {0: (Header(b"a header name in private", b"a header value in private"),)}


@contextmanager
def presenting(key: EncryptionKey | None) -> Iterator[None]:
    """Be a client with this key."""
    before = CLIENT.set(replace(CLIENT.get(), encryption_key=key))
    try:
        yield
    finally:
        CLIENT.reset(before)


async def secret(back: Back, cipher: Cipher, **flags: bool) -> None:
    await back.perform(CreateBasin(SECRET.basin, BasinConfig(stream_cipher=cipher, **flags)))
    if not flags:
        await back.perform(CreateStream(SECRET))


async def records(back: Back, **options: object) -> list[Record]:
    found = await batches(back, FromSeqNum(0), SECRET, **options)
    return [record for batch in found for record in batch.records()]


async def refused(back: Back, operation: object) -> tuple[FailureCode, str]:
    with pytest.raises(OperationFailed) as caught:
        await back.perform(operation)  # type: ignore[arg-type]
    return caught.value.failure.code, caught.value.failure.message


async def unreadable(back: Back) -> FailureCode:
    with pytest.raises(OperationFailed) as caught:
        await records(back)
    return caught.value.failure.code


@CIPHERS
async def test_records_come_back_as_they_went(back: EmbeddedBack, cipher: Cipher) -> None:
    await secret(back, cipher)
    bodies = [b"first", b"", b"x" * 5000, bytes(range(256))]
    headers = {**HEADERS, 3: (Header(b"n", b""), Header(b"n", b"\xff"))}
    with presenting(KEY):
        append = appending(*bodies, headers=headers, stream=SECRET)
        ack = await back.perform(append)
        assert append.bodies == bodies, "the client's own batch stays as it was"
        assert (ack.start.seq_num, ack.end.seq_num) == (0, 4)
        found = await records(back)
        assert [record.body for record in found] == bodies
        assert [record.headers for record in found] == [headers.get(index, ()) for index in range(4)]
        assert [record.seq_num for record in found] == [0, 1, 2, 3]
        (batch,) = await batches(back, FromSeqNum(0), SECRET)
        assert batch.metered == append.metered


@CIPHERS
async def test_no_file_of_the_store_holds_plain_text_or_the_key(
    settings: EmbeddedSettings, cipher: Cipher, tmp_path: object
) -> None:
    body, key = b"a body that is nobody's business", base64.b64decode(KEY.text)
    private = [body, *HEADERS[0][0], key, KEY.text.encode()]

    def files() -> bytes:
        return b"".join(path.read_bytes() for path in settings.directory.rglob("*") if path.is_file())

    async with open_embedded(settings) as back:
        await secret(back, cipher)
        await back.perform(EnsureBasin("basin-plain", BasinConfig()))
        plain = StreamRef("basin-plain", "stream")
        await back.perform(CreateStream(plain))
        with presenting(KEY):
            await back.perform(appending(body, headers=HEADERS, stream=SECRET))
            async with back.append_session(SECRET) as session:
                await session.send(appending(body, headers=HEADERS, stream=SECRET))
                await session.receive()
            assert len(await records(back)) == 2
            during = files()
            await back.perform(appending(b"a body for all", stream=plain))
            assert b"a body for all" in files(), "the search finds what is there"
    for piece in private:
        for start in range(len(piece) - 7):  # no run of eight bytes either
            assert piece[start : start + 8] not in during
            assert piece[start : start + 8] not in files()


@CIPHERS
async def test_without_the_key_nothing_is_appended_or_read(back: EmbeddedBack, cipher: Cipher) -> None:
    await secret(back, cipher)
    missing = f"missing encryption key for stream cipher '{cipher.value}'"
    code, message = await refused(back, appending(b"x", stream=SECRET))
    assert code is C.ENCRYPTION_KEY and message.startswith(missing)
    with pytest.raises(OperationFailed, match=missing):
        async with back.append_session(SECRET):
            pytest.fail("it opened")
    with pytest.raises(OperationFailed, match=missing):
        async with back.read_session(Read(SECRET, FromSeqNum(0))):
            pytest.fail("it opened")
    assert await back.perform(CheckTail(SECRET)) == StreamPosition(0, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("!!!!", "invalid encryption key for stream cipher 'aes-256-gcm': invalid base64"),
        ("QUJD", "invalid encryption key length for stream cipher 'aes-256-gcm': 3"),
        (base64.b64encode(bytes(33)).decode(), "invalid encryption key length for stream cipher 'aes-256-gcm': 33"),
    ],
)
async def test_malformed_keys_are_refused_and_plain_streams_ignore_them(
    back: EmbeddedBack, text: str, why: str
) -> None:
    await secret(back, Cipher.AES_256_GCM)
    with presenting(EncryptionKey(text)):
        assert await refused(back, appending(b"x", stream=SECRET)) == (C.ENCRYPTION_KEY, why)
        assert (await back.perform(appending(b"x"))).end.seq_num == 1
        assert text not in repr(CLIENT.get())


@CIPHERS
async def test_another_key_neither_reads_nor_appends(settings: EmbeddedSettings, cipher: Cipher) -> None:
    """The first append decides the key, even if it is not durable yet when the second comes."""
    async with open_embedded(settings) as back:
        await secret(back, cipher)
        async with trio.open_nursery() as nursery:
            with presenting(KEY):
                nursery.start_soon(back.perform, appending(b"mine", stream=SECRET))
            await trio.testing.wait_all_tasks_blocked()
            with presenting(OTHER):
                assert await refused(back, appending(b"others'", stream=SECRET)) == WRONG_KEY
    async with open_embedded(settings) as back:
        with presenting(OTHER):
            assert await unreadable(back) is C.DECRYPTION_FAILED
            assert await refused(back, appending(b"others'", stream=SECRET)) == WRONG_KEY
            assert await refused(back, appending(b"others'", match=0, stream=SECRET)) == WRONG_KEY
            assert await refused(back, fence(b"others'", stream=SECRET)) == WRONG_KEY
            with pytest.raises(OperationFailed, match="record decryption failed"):
                async with back.append_session(SECRET):
                    pytest.fail("it opened")
        with presenting(KEY):
            assert (await back.perform(appending(b"mine, too", stream=SECRET))).start.seq_num == 1
            assert [record.body for record in await records(back)] == [b"mine", b"mine, too"]
            await back.perform(DeleteStream(SECRET))
            await back.perform(CreateStream(SECRET))
        with presenting(OTHER):
            await back.perform(appending(b"a new stream", stream=SECRET))


@CIPHERS
async def test_a_session_that_opened_first_is_refused_after_another_key(back: EmbeddedBack, cipher: Cipher) -> None:
    await secret(back, cipher)
    with presenting(OTHER):
        async with back.append_session(SECRET) as session:
            with presenting(KEY):
                await back.perform(appending(b"mine", stream=SECRET))
            await session.send(appending(b"others'", stream=SECRET))
            with pytest.raises(OperationFailed, match="record decryption failed"):
                await session.receive()
    with presenting(KEY):
        assert [record.body for record in await records(back)] == [b"mine"]


@CIPHERS
@pytest.mark.parametrize("in_files", [False, True])
async def test_a_stream_without_a_check_value_takes_the_key_of_its_newest_record(
    settings: EmbeddedSettings, cipher: Cipher, in_files: bool
) -> None:
    """A stream of an older gateway: its newest record that is intact decides, past commands and damage."""
    settings = replace(settings, payload_file_bytes=1 if in_files else settings.payload_file_bytes)
    async with open_embedded(settings) as back:
        await secret(back, cipher)
        with presenting(KEY):
            for append in (appending(b"intact", stream=SECRET), appending(b"damaged", stream=SECRET)):
                await back.perform(append)
            await back.perform(fence(b"token", stream=SECRET))
    with closing(sqlite3.connect(settings.directory / FILE_NAME, isolation_level=None)) as db:
        (key_check,) = db.execute("SELECT key_check FROM streams").fetchone()
        assert base64.b64decode(KEY.text) not in key_check
        db.execute("UPDATE streams SET key_check = NULL")
        db.execute("UPDATE batches SET checksum = checksum + 1 WHERE last_seq = ?", (1,))
    async with open_embedded(settings) as back:
        with presenting(OTHER):
            assert await refused(back, appending(b"others'", stream=SECRET)) == WRONG_KEY
        with presenting(KEY):
            await back.perform(appending(b"mine", stream=SECRET))
            assert [record.body for record in await records_from(back, 2)] == [b"token", b"mine"]
    with closing(sqlite3.connect(settings.directory / FILE_NAME)) as db:
        assert db.execute("SELECT key_check FROM streams").fetchone() == (key_check,)


async def records_from(back: Back, seq_num: int) -> list[Record]:
    found = await batches(back, FromSeqNum(seq_num), SECRET)
    return [record for batch in found for record in batch.records()]


@CIPHERS
async def test_limits_count_the_plain_records(back: EmbeddedBack, cipher: Cipher) -> None:
    await secret(back, cipher)
    with presenting(KEY):
        await back.perform(appending(*[b"x" * 92] * 10, stream=SECRET))  # 100 bytes each, metered
        for most, count in ((99, 0), (100, 1), (250, 2), (1000, 10), (999, 9)):
            assert len(await records(back, max_bytes=most)) == count
        assert len(await records(back, count=3)) == 3
        assert len(await records_from(back, 7)) == 3
        full = appending(b"y" * ((1 << 20) - 8), stream=SECRET)
        await back.perform(full)
        assert [batch.metered for batch in await batches(back, FromSeqNum(10), SECRET)] == [1 << 20]


@CIPHERS
async def test_conditions_and_commands_work_as_ever(back: EmbeddedBack, cipher: Cipher) -> None:
    """Command records stay in plain text: the store carries them out."""
    await secret(back, cipher)
    with presenting(KEY):
        await back.perform(appending(b"0", match=0, stream=SECRET))
        assert (await refused(back, appending(b"1", match=0, stream=SECRET)))[0] is C.SEQ_NUM_MISMATCH
        await back.perform(fence(b"token", stream=SECRET))
        assert (await refused(back, appending(b"2", token="other", stream=SECRET)))[0] is C.FENCING_TOKEN_MISMATCH
        await back.perform(appending(b"2", token="token", stream=SECRET))
        assert [record.body for record in await records(back)] == [b"0", b"token", b"2"]
        assert (await records(back))[1].headers == (Header(b"", b"fence"),)
        await back.perform(trim_record(2, stream=SECRET))
        assert [record.seq_num for record in await records(back)] == [2, 3]
        located = await back.perform(Locate(SECRET, FromTimestamp(0)))
    assert located.seq_num == 2


@CIPHERS
async def test_sessions_keep_order_and_fail_alike(back: EmbeddedBack, cipher: Cipher) -> None:
    await secret(back, cipher)
    with presenting(KEY):
        async with back.append_session(SECRET) as session:
            for number in range(20):
                await session.send(appending(b"%d" % number, match=number, stream=SECRET))
            await session.send(appending(b"no", match=0, stream=SECRET))
            acknowledged = []
            with pytest.raises(OperationFailed, match="20"):
                while True:
                    acknowledged += await session.receive()
        assert [ack.start.seq_num for ack in acknowledged] == list(range(20))
        assert [record.body for record in await records(back)] == [b"%d" % number for number in range(20)]


async def test_followers_get_records_decrypted(back: EmbeddedBack) -> None:
    await secret(back, Cipher.AEGIS_256)
    with presenting(KEY):
        async with back.read_session(Read(SECRET, FromSeqNum(0), wait=60)) as session:
            await session.next()
            await back.perform(appending(b"new", headers=HEADERS, stream=SECRET))
            batch = await session.next()
    assert batch is not None and not isinstance(batch, tuple)
    (record,) = batch.records()  # type: ignore[union-attr]
    assert (record.body, record.headers) == (b"new", HEADERS[0])


@CIPHERS
async def test_streams_made_by_appends_and_reads_have_the_cipher(back: EmbeddedBack, cipher: Cipher) -> None:
    await secret(back, cipher, create_stream_on_append=True, create_stream_on_read=True)
    with presenting(KEY):
        await back.perform(appending(b"x", stream=SECRET))
    await back.perform(CheckTail(StreamRef(SECRET.basin, "other")))
    page = await back.perform(ListStreams(SECRET.basin))
    assert {info.name: info.cipher for info in page.items} == {"other": cipher, "stream": cipher}


async def test_the_cipher_is_fixed_when_the_stream_is_created(back: EmbeddedBack) -> None:
    await secret(back, Cipher.AES_256_GCM)
    await back.perform(EnsureBasin(SECRET.basin, BasinConfig()))
    plain = StreamRef(SECRET.basin, "plain")
    made = await back.perform(CreateStream(plain))
    assert made.info.cipher is None
    await back.perform(appending(b"x", stream=plain))
    assert (await refused(back, appending(b"x", stream=SECRET)))[0] is C.ENCRYPTION_KEY
    await back.perform(DeleteStream(SECRET))
    await back.perform(CreateStream(SECRET))
    await back.perform(appending(b"x", stream=SECRET))


async def test_a_restart_keeps_ciphers(settings: EmbeddedSettings) -> None:
    async with open_embedded(settings) as back:
        await secret(back, Cipher.AEGIS_256)
        with presenting(KEY):
            await back.perform(appending(b"x", headers=HEADERS, stream=SECRET))
    async with open_embedded(settings) as back:
        assert (await back.perform(GetBasinConfig(SECRET.basin))).stream_cipher is Cipher.AEGIS_256
        assert await back.perform(GetStreamConfig(SECRET)) == StreamConfig().resolve()
        assert await unreadable(back) is C.ENCRYPTION_KEY
        with presenting(OTHER):
            assert await unreadable(back) is C.DECRYPTION_FAILED
        with presenting(KEY):
            assert [record.headers for record in await records(back)] == [HEADERS[0]]


async def test_bytes_of_an_encrypted_stream_are_refused(back: EmbeddedBack) -> None:
    await secret(back, Cipher.AES_256_GCM)
    target = StreamRef(SECRET.basin, "target")
    await back.perform(CreateStream(target))
    for operation in (AppendBytes(SECRET, b"x"), ReadBytes(SECRET, 0, 10, 0), Merge(target, (SECRET,))):
        code, message = await refused(back, operation)
        assert code is C.ENCRYPTION_KEY and "basin-secret/" in message


@pytest.fixture
async def damaged(settings: EmbeddedSettings) -> AsyncIterator[sqlite3.Connection]:
    """The file of a closed store with one encrypted record in each of two streams."""
    async with open_embedded(settings) as back:
        await secret(back, Cipher.AES_256_GCM)
        other = StreamRef(SECRET.basin, "zother")
        await back.perform(CreateStream(other))
        with presenting(KEY):
            await back.perform(appending(b"ours", stream=SECRET))
            await back.perform(appending(b"else", stream=other))
    db = sqlite3.connect(settings.directory / FILE_NAME, isolation_level=None)
    yield db
    db.close()


_COPIES = {
    "swapped": "UPDATE batches SET (payload, checksum) ="
    " (SELECT payload, checksum FROM batches b WHERE b.stream = batches.stream AND b.last_seq = 1 - batches.last_seq)",
    "repeated": "UPDATE batches SET (payload, checksum) ="
    " (SELECT payload, checksum FROM batches b WHERE b.stream = batches.stream AND b.last_seq = 0)",
    "renumbered": "UPDATE batches SET first_seq = 1 - first_seq, last_seq = 1 - last_seq",
    "of another stream": "UPDATE batches SET stream = (SELECT sum(id) FROM streams) - stream",
    "of a stream that had the name": "UPDATE streams SET created_at = created_at + 1",
}


@CIPHERS
@pytest.mark.parametrize("change", list(_COPIES))
async def test_a_record_at_another_place_than_its_own_is_not_decrypted(
    settings: EmbeddedSettings, cipher: Cipher, change: str
) -> None:
    """Two streams with two records each, as an attacker who can write to the disk may arrange them."""
    other = StreamRef(SECRET.basin, "zother")
    async with open_embedded(settings) as back:
        await secret(back, cipher)
        await back.perform(CreateStream(other))
        with presenting(KEY):
            for stream in (SECRET, other):
                await back.perform(appending(b"first", stream=stream))
                await back.perform(appending(b"again", stream=stream))
    with closing(sqlite3.connect(settings.directory / FILE_NAME, isolation_level=None)) as db:
        assert db.execute(_COPIES[change]).rowcount >= 2
    async with open_embedded(settings) as back:
        with presenting(KEY):
            assert await unreadable(back) is C.DECRYPTION_FAILED


_UNBOUND = {
    Cipher.AEGIS_256: "013961ac286d9b5c8ad3ba64717dc525c6b39309cce60893a4a54f330d8595f2"
    "8818fb71539c1265f0245750712502b1ce8e8a2aaf663b12c8ad06657799c8aebe36af",
    Cipher.AES_256_GCM: "028896796823a051feb695b6806f8f7a1aaa1ec5ec59a74110cf6547a989af90"
    "12cfbe39c13bfe427eb012a23f09e6",
}
"""A record as gateways before schema version 9 stored it: body `before`, header `n: v`."""


@CIPHERS
async def test_records_of_older_gateways_are_read_beside_new_ones(settings: EmbeddedSettings, cipher: Cipher) -> None:
    async with open_embedded(settings) as back:
        await secret(back, cipher)
        with presenting(KEY):
            await back.perform(appending(b"replaced", stream=SECRET))
    stored = encode_records(Columns((0,), (NOW,), [bytes.fromhex(_UNBOUND[cipher])], {}))
    with closing(sqlite3.connect(settings.directory / FILE_NAME, isolation_level=None)) as db:
        db.execute("UPDATE batches SET payload = ?, checksum = NULL", (stored,))
        db.execute("UPDATE streams SET key_check = NULL")
    async with open_embedded(settings) as back:
        with presenting(OTHER):
            assert await refused(back, appending(b"others'", stream=SECRET)) == WRONG_KEY
        with presenting(KEY):
            await back.perform(appending(b"after", stream=SECRET))
            before, after = await records(back)
    assert (before.body, before.headers, after.body) == (b"before", (Header(b"n", b"v"),), b"after")


@pytest.mark.parametrize("headers", [{}, HEADERS], ids=["body", "headers"])
async def test_a_plain_record_in_an_encrypted_stream_is_damage(
    settings: EmbeddedSettings, damaged: sqlite3.Connection, headers: dict[int, Headers]
) -> None:
    plain = encode_records(Columns((0,), (NOW,), [b"not encrypted"], headers))
    damaged.execute("UPDATE batches SET payload = ?, checksum = NULL", (plain,))
    async with open_embedded(settings) as back:
        with presenting(KEY):
            assert await unreadable(back) is C.DAMAGED


async def test_aes_gcm_takes_no_more_records_than_its_nonces_allow(
    settings: EmbeddedSettings, damaged: sqlite3.Connection
) -> None:
    damaged.execute("UPDATE batches SET first_seq = 4294967294, last_seq = 4294967294")
    async with open_embedded(settings) as back:
        with presenting(KEY):
            code, message = await refused(back, appending(b"x", b"y", stream=SECRET))
            assert (code, message) == (
                C.INVALID,
                "max assignable sequence number is 4294967295; attempted 4294967296",
            )
            assert (await back.perform(appending(b"x", stream=SECRET))).start.seq_num == 4294967295
