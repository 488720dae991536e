"""Encrypted streams with the clients that hold the keys: the official ones of Python, TypeScript and Rust (the CLI).

The servers must not be told from each other: `s2 lite` itself, Penstock, and a Penstock in front of each of them. Only
appends with another key differ: S2 takes them, Penstock's store refuses them.
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import s2_sdk as s2
from msgspec.structs import replace
from s2_sdk import AppendInput, CommandRecord, Encryption, Record, SeqNum
from support import real_peers
from support.captures.redaction import leaks
from support.peers import finish, run_client, unique
from support.process import CONFIG, running_gateway
from support.real_backs import BackServer, S2Lite, SecondPenstock
from support.s2.sdk import Connect, connector
from support.store import appending, batches

from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CheckTail, CreateStream, EnsureBasin, FromSeqNum, Read
from penstock.model.records import Header, StreamRef
from penstock.model.streams import BasinConfig, Cipher
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_s2.back.back import S2Back, open_s2
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sse import open_s2_sse

KEY, OTHER = bytes([1]) * 32, bytes([2]) * 32
CIPHERS = pytest.mark.parametrize("cipher", list(Encryption), ids=lambda cipher: cipher.value)
SECRETS = [b"a body in private", b"", b"x" * 5000]
HEADERS = [(b"header", b"value in private")]
BRIDGE = """
[backs.far]
kind = "s2"
address = "{}:{}"

[[routes]]
name = "all"
basin = "*"
back = "far"
"""


@contextmanager
def _server(kind: str) -> Iterator[int]:
    """Run the server, and give its port. "A-B": a Penstock in front of B."""
    with ExitStack() as stack:
        server: BackServer = S2Lite() if kind.endswith("lite") else SecondPenstock("s2")
        address = stack.enter_context(server).address
        if "-" in kind:
            text = CONFIG.replace("[log]", BRIDGE.format(*address) + "\n[log]")
            yield stack.enter_context(running_gateway(text)).s2_port
        else:
            yield address[1]


@pytest.fixture(scope="module", params=["lite", "penstock", "penstock-lite", "penstock-penstock"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with _server(request.param) as port:
        yield port


@pytest.fixture
def takes_any_key(request: pytest.FixtureRequest) -> bool:
    """True if the server takes appends with another key than that of the stream's records."""
    return str(request.node.callspec.params["port"]).endswith("lite")


@pytest.fixture
def secret(port: int) -> Connect:
    """Opens clients of the server."""
    return connector(port)


Work = Callable[[s2.S2, s2.S2Basin], Coroutine[None, None, None]]


def in_basin(connect: Connect, cipher: Encryption | None, work: Work, **flags: bool) -> None:
    """Do the work in a new basin whose streams get the cipher, with a stream `s` in it."""

    async def main() -> None:
        async with connect() as client:
            name = unique("secret")
            await client.create_basin(name, config=s2.BasinConfig(stream_cipher=cipher, **flags))
            basin = client.basin(name)
            await basin.create_stream("s")
            await work(client, basin)

    finish(main())


async def refused(attempt: Coroutine[None, None, object]) -> tuple[int, str, str]:
    with pytest.raises(s2.S2ServerError) as caught:
        await attempt
    return caught.value.status_code, caught.value.code, str(caught.value)


async def session_read(stream: s2.S2Stream, count: int) -> list[s2.SequencedRecord]:
    found: list[s2.SequencedRecord] = []
    async with stream.read_session(start=SeqNum(0)) as session:
        async for batch in session:
            found += batch.records
            if len(found) >= count:
                break
    return found


@CIPHERS
def test_unary(secret: Connect, cipher: Encryption) -> None:
    async def work(client: s2.S2, basin: s2.S2Basin) -> None:
        stream = basin.stream("s", encryption_key=KEY)
        ack = await stream.append(AppendInput([Record(body, headers=HEADERS) for body in SECRETS]))
        assert ack.end.seq_num == 3
        batch = await stream.read(start=SeqNum(0))
        assert [record.body for record in batch.records] == SECRETS
        assert all(list(record.headers) == HEADERS for record in batch.records)
        page = await basin.list_streams()
        assert [(info.name, info.cipher) for info in page.items] == [("s", cipher)]
        assert (await client.get_basin_config(basin.name)).stream_cipher == cipher

    in_basin(secret, cipher, work)


@CIPHERS
def test_sessions(secret: Connect, cipher: Encryption) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        stream = basin.stream("s", encryption_key=base64.b64encode(KEY).decode())
        async with stream.append_session() as session:
            tickets = [await session.submit(AppendInput([Record(body, headers=HEADERS)])) for body in SECRETS * 5]
            acks = [await ticket for ticket in tickets]
        assert [ack.start.seq_num for ack in acks] == list(range(15))
        found = await session_read(stream, 15)
        assert [record.body for record in found] == SECRETS * 5
        assert all(list(record.headers) == HEADERS for record in found)

    in_basin(secret, cipher, work)


@CIPHERS
def test_unary_and_session_read_what_the_other_wrote(secret: Connect, cipher: Encryption) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        stream = basin.stream("s", encryption_key=KEY)
        await stream.append(AppendInput([Record(b"unary")]))
        async with stream.append_session() as session:
            await (await session.submit(AppendInput([Record(b"session")])))
        expected = [b"unary", b"session"]
        assert [record.body for record in (await stream.read(start=SeqNum(0))).records] == expected
        assert [record.body for record in await session_read(stream, 2)] == expected

    in_basin(secret, cipher, work)


@CIPHERS
def test_without_a_key(secret: Connect, cipher: Encryption) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        await basin.stream("s", encryption_key=KEY).append(AppendInput([Record(b"x")]))
        bare = basin.stream("s")
        for attempt in (bare.append(AppendInput([Record(b"y")])), bare.read(start=SeqNum(0)), session_read(bare, 1)):
            status, code, message = await refused(attempt)
            assert (status, code) == (400, "bad_header")
            assert f"missing encryption key for stream cipher '{cipher.value}'" in message

        async def in_session() -> None:
            async with bare.append_session() as session:
                await (await session.submit(AppendInput([Record(b"y")])))

        assert (await refused(in_session()))[:2] == (400, "bad_header")
        assert (await bare.check_tail()).seq_num == 1, "the tail needs no key"

    in_basin(secret, cipher, work)


@CIPHERS
def test_another_key_neither_reads_nor_replaces_the_first(
    secret: Connect, cipher: Encryption, takes_any_key: bool
) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        mine, others = basin.stream("s", encryption_key=KEY), basin.stream("s", encryption_key=OTHER)
        await mine.append(AppendInput([Record(b"mine")]))
        assert (await refused(others.read(start=SeqNum(0))))[:2] == (400, "decryption_failed")
        assert (await refused(session_read(others, 1)))[:2] == (400, "decryption_failed")

        async def in_session() -> None:
            async with others.append_session() as session:
                await (await session.submit(AppendInput([Record(b"others")])))

        if not takes_any_key:
            for attempt in (others.append(AppendInput([Record(b"others")])), in_session()):
                status, code, message = await refused(attempt)
                assert (status, code) == (400, "decryption_failed") and "record decryption failed" in message
            await mine.append(AppendInput([Record(b"mine, too")]))
            assert [record.body for record in (await mine.read(start=SeqNum(0))).records] == [b"mine", b"mine, too"]
            return
        await others.append(AppendInput([Record(b"others")]))  # keys are per record, and nothing is encrypted again
        assert [record.body for record in (await others.read(start=SeqNum(1))).records] == [b"others"]
        first = await mine.read(start=SeqNum(0), limit=s2.ReadLimit(count=1))
        assert [record.body for record in first.records] == [b"mine"]
        assert (await refused(mine.read(start=SeqNum(0))))[:2] == (400, "decryption_failed")

    in_basin(secret, cipher, work)


def test_a_plain_stream_ignores_the_key(secret: Connect) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        await basin.stream("s", encryption_key=KEY).append(AppendInput([Record(b"x")]))
        assert [record.body for record in (await basin.stream("s").read(start=SeqNum(0))).records] == [b"x"]
        assert (await basin.list_streams()).items[0].cipher is None

    in_basin(secret, None, work)


def test_keys_of_a_wrong_length(secret: Connect) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        short = basin.stream("s", encryption_key=b"short")
        status, code, message = await refused(short.append(AppendInput([Record(b"x")])))
        assert (status, code) == (400, "bad_header")
        assert "invalid encryption key length for stream cipher 'aes-256-gcm': 5" in message

    in_basin(secret, Encryption.AES_256_GCM, work)


@CIPHERS
def test_a_change_of_the_basin_leaves_streams_as_they_are(secret: Connect, cipher: Encryption) -> None:
    async def work(client: s2.S2, basin: s2.S2Basin) -> None:
        other = next(each for each in Encryption if each is not cipher)
        await client.reconfigure_basin(basin.name, config=s2.BasinConfig(stream_cipher=other))
        await basin.create_stream("t")
        ciphers = {info.name: info.cipher for info in (await basin.list_streams()).items}
        assert ciphers == {"s": cipher, "t": other}
        for name in ciphers:
            stream = basin.stream(name, encryption_key=KEY)
            await stream.append(AppendInput([Record(b"x")]))
            assert [record.body for record in (await stream.read(start=SeqNum(0))).records] == [b"x"]

    in_basin(secret, cipher, work)


@CIPHERS
def test_conditions_and_commands(secret: Connect, cipher: Encryption) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        stream = basin.stream("s", encryption_key=KEY)
        await stream.append(AppendInput([Record(b"0")], match_seq_num=0))
        with pytest.raises(s2.SeqNumMismatchError):
            await stream.append(AppendInput([Record(b"1")], match_seq_num=0))
        await stream.append(AppendInput([CommandRecord.fence("token")]))
        with pytest.raises(s2.FencingTokenMismatchError):
            await stream.append(AppendInput([Record(b"1")], fencing_token="other"))
        await stream.append(AppendInput([Record(b"2")], fencing_token="token"))
        found = (await stream.read(start=SeqNum(0))).records
        assert [record.body for record in found] == [b"0", b"token", b"2"]
        metered = sum(8 + len(record.body) + (7 if record.headers else 0) for record in found)
        assert len((await stream.read(start=SeqNum(0), limit=s2.ReadLimit(bytes=metered))).records) == 3
        assert len((await stream.read(start=SeqNum(0), limit=s2.ReadLimit(bytes=metered - 1))).records) == 2

    in_basin(secret, cipher, work)


@CIPHERS
def test_streams_created_by_their_first_append(secret: Connect, cipher: Encryption) -> None:
    async def work(_: s2.S2, basin: s2.S2Basin) -> None:
        stream = basin.stream("new", encryption_key=KEY)
        await stream.append(AppendInput([Record(b"x")]))
        assert [record.body for record in (await stream.read(start=SeqNum(0))).records] == [b"x"]
        assert (await refused(basin.stream("new").read(start=SeqNum(0))))[:2] == (400, "bad_header")

    in_basin(secret, cipher, work, create_stream_on_append=True)


# ---- other clients -----------------------------------------------------------------------------------------------


@CIPHERS
def test_the_command_line(port: int, cipher: Encryption, tmp_path: Path) -> None:
    program = real_peers.s2_program()
    if not program.exists():
        pytest.skip("s2 is not installed: `make peers`")
    origin = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "S2_ACCESS_TOKEN": "a-token",
        "S2_ACCOUNT_ENDPOINT": origin,
        "S2_BASIN_ENDPOINT": origin,
    }

    def run(*args: str, key: bytes | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        keyed = {} if key is None else {"S2_ENCRYPTION_KEY": base64.b64encode(key).decode()}
        return subprocess.run(
            [program, *args], env={**environment, **keyed}, input=stdin, capture_output=True, timeout=60, check=False
        )

    basin = unique("cli")
    made = run("create-basin", basin, "--stream-cipher", cipher.value)
    assert made.returncode == 0, made.stderr
    uri = f"s2://{basin}/s"
    assert run("create-stream", uri).returncode == 0
    appended = run("append", uri, key=KEY, stdin=b"one\ntwo\n")
    assert appended.returncode == 0, appended.stderr
    read = run("read", uri, "--seq-num", "0", "--count", "2", key=KEY)
    assert read.stdout == b"one\ntwo\n", read.stderr
    for wrong, why in ((OTHER, b"decryption failed"), (None, b"missing encryption key")):
        failed = run("read", uri, "--seq-num", "0", "--count", "2", key=wrong)
        assert failed.returncode != 0
        assert why in failed.stderr.lower(), failed.stderr


@CIPHERS
@pytest.mark.parametrize("transport", ["s2s", "fetch"])
def test_streamstore(port: int, cipher: Encryption, transport: str) -> None:
    node = Path(__file__).parent / "node"
    if not (node / "node_modules" / "@s2-dev" / "streamstore").is_dir():
        pytest.skip("the npm clients are not installed: `make node-peers`")
    origin = f"http://127.0.0.1:{port}"
    run_client(["node", "encryption.mjs", origin, unique("node"), cipher.value, transport], cwd=node, seconds=60)


# ---- the back without passthrough --------------------------------------------------------------------------------


@contextmanager
def presenting(key: bytes | None) -> Iterator[None]:
    shown = None if key is None else EncryptionKey(base64.b64encode(key).decode())
    before = CLIENT.set(replace(CLIENT.get(), encryption_key=shown))
    try:
        yield
    finally:
        CLIENT.reset(before)


@asynccontextmanager
async def opened(port: int, opener: Callable[..., object] = open_s2) -> AsyncIterator[S2Back]:
    upstream = Upstream(UpstreamSettings(name="far", host="127.0.0.1", port=port))
    async with opener(S2BackSettings(), upstream) as back:  # type: ignore[attr-defined]
        yield back


@pytest.mark.parametrize("cipher", list(Cipher), ids=lambda cipher: cipher.value)
async def test_a_back_presents_the_key_of_each_client(port: int, cipher: Cipher, takes_any_key: bool) -> None:
    stream = StreamRef(unique("back"), "s")
    headers = {0: (Header(b"n", b"v"),)}
    async with opened(port) as back:
        await back.perform(EnsureBasin(stream.basin, BasinConfig(stream_cipher=cipher)))
        made = await back.perform(CreateStream(stream))
        assert made.info.cipher is cipher
        if not takes_any_key:
            with presenting(KEY):
                await back.perform(appending(b"0", stream=stream))
            with presenting(OTHER), pytest.raises(OperationFailed) as caught:
                await back.perform(appending(b"1", stream=stream))
            assert caught.value.failure.code is FailureCode.DECRYPTION_FAILED
            with presenting(KEY):
                assert (await back.perform(appending(b"1", stream=stream))).start.seq_num == 1
            return
        for key, seq_num in ((KEY, 0), (OTHER, 1)):  # two clients, at once: each has a session of its own
            with presenting(key):
                ack = await back.perform(appending(b"%d" % seq_num, headers=headers, stream=stream))
                assert ack.start.seq_num == seq_num
                (batch,) = await batches(back, FromSeqNum(seq_num), stream, count=1)
                (record,) = batch.records()
                assert (record.body, record.headers) == (b"%d" % seq_num, headers[0])
        with presenting(KEY):
            with pytest.raises(OperationFailed) as caught:
                await batches(back, FromSeqNum(1), stream, count=1)
            assert caught.value.failure.code is FailureCode.DECRYPTION_FAILED
        with pytest.raises(OperationFailed, match="missing encryption key"):
            await back.perform(appending(b"x", stream=stream))
        with pytest.raises(OperationFailed, match="missing encryption key"):
            async with back.read_session(Read(stream, FromSeqNum(0))):
                pytest.fail("it opened")
        assert (await back.perform(CheckTail(stream))).seq_num == 2
    async with opened(port, open_s2_sse) as back:
        with presenting(OTHER):
            (batch,) = await batches(back, FromSeqNum(1), stream, count=1)
            assert [record.body for record in batch.records()] == [b"1"]


# ---- what is left behind -----------------------------------------------------------------------------------------


@CIPHERS
def test_recordings_hold_no_key_but_what_was_on_the_wire(tmp_path: Path, cipher: Encryption) -> None:
    """A recording holds the records as the client sent them; the store holds neither them nor the key."""
    recorder = f'\n[recorder]\ndirectory = "{tmp_path}"\n'
    with running_gateway(CONFIG + recorder) as gateway:

        async def work(_: s2.S2, basin: s2.S2Basin) -> None:
            stream = basin.stream("s", encryption_key=KEY)
            await stream.append(AppendInput([Record(b"a body in private")]))
            async with stream.append_session() as session:
                await (await session.submit(AppendInput([Record(b"another in private")])))
            await session_read(stream, 2)

        in_basin(connector(gateway.s2_port), cipher, work)
        data = Path(gateway.data) if hasattr(gateway, "data") else None
        assert data is not None
        stored = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
        gateway.terminate()
    recorded = [path.read_bytes() for path in tmp_path.glob("penstock-*")]
    assert recorded
    for secret in (KEY, base64.b64encode(KEY)):
        assert not any(leaks(each, secret) for each in recorded)
        assert secret not in stored
    assert any(leaks(each, b"a body in private") for each in recorded), "the wire had it in plain text"
    assert b"in private" not in stored
