"""Records that S3P cannot carry (headers, empty bodies, commands), under each policy: refused, enveloped, dropped."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import pytest
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s2.frames import record
from support.s3p.client import S3PClient, S3PError

from penstock_proto import s2_pb2 as pb

MARK = b"\xf5PEN\x01"
HEADERS = [(b"content-type", b"text/plain"), (b"\xff", b"")]
FENCE = [(b"", b"fence")]
_numbers = count()

CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:{{s2_port}}"

[listeners.s3p]
bind = "127.0.0.1:{{s3p_port}}"

[listeners.s3p.loss]
headers = "{policy}"
empty_body = "{policy}"
command_records = "{policy}"

[store]
directory = "{{data}}"

[[store.basins]]
name = "{{basin}}"

[log]
format = "json"
"""


@dataclass
class Pair:
    """One stream, as S2 and as S3P know it."""

    s2: S2Client
    s3p: S3PClient
    stream: str

    def append(self, *records: pb.AppendRecord) -> None:
        """Append through S2, one batch."""
        answer = self.s2.append_proto(self.stream, pb.AppendInput(records=records).SerializeToString())
        assert answer.status == 200, answer

    def through_s2(self) -> list[tuple[list[tuple[bytes, bytes]], bytes]]:
        """Headers and bodies as S2 reads them."""
        records = self.s2.read_proto(self.stream, seq_num=0).records
        return [([(pair.name, pair.value) for pair in item.headers], item.body) for item in records]

    def bodies(self, **options: object) -> list[bytes]:
        """Bodies as S3P reads them."""
        found = self.s3p.read(self.stream, **options)
        assert not isinstance(found, S3PError), found
        return [body for _, body in found]


def pair_of(process: GatewayProcess) -> Iterator[Pair]:
    with S3PClient(("127.0.0.1", process.s3p_port)) as s3p:
        stream = f"loss-{next(_numbers)}"
        assert s3p.create(stream) == "OK"
        yield Pair(S2Client(("127.0.0.1", process.s2_port), BASIN), s3p, stream)


def gateway_with(policy: str) -> Callable[[], Iterator[GatewayProcess]]:
    def run() -> Iterator[GatewayProcess]:
        with running_gateway(CONFIG.format(policy=policy)) as process:
            yield process

    return run


refusing_gateway = pytest.fixture(scope="module")(gateway_with("refuse"))
enveloping_gateway = pytest.fixture(scope="module")(gateway_with("envelope"))
dropping_gateway = pytest.fixture(scope="module")(gateway_with("drop"))


@pytest.fixture
def default(gateway: GatewayProcess) -> Iterator[Pair]:
    yield from pair_of(gateway)


@pytest.fixture
def refusing(refusing_gateway: GatewayProcess) -> Iterator[Pair]:
    yield from pair_of(refusing_gateway)


@pytest.fixture
def enveloping(enveloping_gateway: GatewayProcess) -> Iterator[Pair]:
    yield from pair_of(enveloping_gateway)


@pytest.fixture
def dropping(dropping_gateway: GatewayProcess) -> Iterator[Pair]:
    yield from pair_of(dropping_gateway)


def ids(pair: Pair, *timestamps_and_bodies: tuple[int, pb.AppendRecord]) -> None:
    """Append records at given timestamps, so that the test knows their identifiers."""
    for timestamp, item in timestamps_and_bodies:
        item.timestamp = timestamp
        pair.append(item)


def refused(reply: object, identifier: str) -> None:
    """Must be the error that names the record which cannot be carried."""
    assert isinstance(reply, S3PError), reply
    assert reply.code == "ERR_NOT_REPRESENTABLE"
    assert identifier in reply.message


# ---- the default: headers and empty bodies are refused, commands are left out ----------------------------------------


@pytest.mark.parametrize("awkward", [record(b"x", HEADERS), record(b"")], ids=["headers", "empty body"])
def test_default_refuses(default: Pair, awkward: pb.AppendRecord) -> None:
    """Earlier records are delivered; a read that begins at the record is refused; one that begins after it succeeds."""
    ids(default, (10, record(b"before")), (20, awkward), (30, record(b"after")))
    assert default.bodies() == [b"before"]
    refused(default.s3p.read(default.stream, MIN_ID="10-1"), "20-0")
    refused(default.s3p.read(default.stream, MIN_ID="20-0", BLOCK=100), "20-0")
    assert default.bodies(MIN_ID="20-1") == [b"after"]
    assert default.bodies(COUNT=1) == [b"before"]


def test_default_leaves_commands_out(default: Pair) -> None:
    ids(
        default,
        (10, record(b"one")),
        (10, record(b"tok", FENCE)),
        (10, record(b"two")),
        (20, record(b"", FENCE)),
        (30, record(b"three")),
    )
    expected = [(b"10-0", b"one"), (b"10-2", b"two"), (b"30-0", b"three")]
    assert default.s3p.read(default.stream) == expected
    assert default.s3p.read(default.stream, MIN_ID="10-1", COUNT=1) == expected[1:2]
    assert default.s3p.read(default.stream, MIN_ID="20-0", COUNT=1) == expected[2:]


def test_many_commands_in_a_row_do_not_end_a_read(default: Pair) -> None:
    """More than one page of them: an empty reply would tell the client that there is nothing more."""
    default.append(*[record(b"", FENCE)] * 1000)
    default.append(*[record(b"", FENCE)] * 500, record(b"at last"))
    assert default.bodies() == [b"at last"]
    assert default.bodies(COUNT=1) == [b"at last"]


def test_a_command_does_not_end_a_wait(default: Pair, gateway_s3p: Callable[[], S3PClient]) -> None:
    with gateway_s3p() as waiting, ThreadPoolExecutor(1) as pool:
        waiting.send("READ", default.stream, ["BLOCK", 5000])
        reply = pool.submit(waiting.reply)
        default.append(record(b"tok", FENCE))
        with pytest.raises(TimeoutError):
            reply.result(0.3)
        default.append(record(b"real"))
        assert reply.result(5)[1] == b"real"


# ---- refuse everything -----------------------------------------------------------------------------------------------


def test_refuse(refusing: Pair) -> None:
    ids(refusing, (10, record(b"x", HEADERS)), (20, record(b"")), (30, record(b"tok", FENCE)), (40, record(b"plain")))
    for minimum in ("0-0", "10-0"):
        refused(refusing.s3p.read(refusing.stream, MIN_ID=minimum), "10-0")
    refused(refusing.s3p.read(refusing.stream, MIN_ID="10-1"), "20-0")
    refused(refusing.s3p.read(refusing.stream, MIN_ID="20-1"), "30-0")
    assert refusing.bodies(MIN_ID="30-1") == [b"plain"]


# ---- envelopes -------------------------------------------------------------------------------------------------------


def opened(body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of an envelope, by hand: mark, version 1, an AppendRecord."""
    assert body.startswith(MARK), body
    inside = pb.AppendRecord.FromString(body[len(MARK) :])
    assert not inside.HasField("timestamp")
    return [(pair.name, pair.value) for pair in inside.headers], inside.body


def test_envelopes_carry_everything(enveloping: Pair) -> None:
    enveloping.append(record(b"x", HEADERS), record(b""), record(b"", HEADERS), record(b"tok", FENCE), record(b"plain"))
    *wrapped, plain = enveloping.bodies()
    assert plain == b"plain"
    assert [opened(body) for body in wrapped] == enveloping.through_s2()[:-1]


def test_envelopes_come_back(enveloping: Pair) -> None:
    """A record read by an S3P client and appended to another stream is the same record for S2."""
    enveloping.append(record(b"x", HEADERS), record(b""), record(MARK + b"looks like one"), record(b"plain"))
    copy = f"{enveloping.stream}-copy"
    assert enveloping.s3p.create(copy) == "OK"
    assert isinstance(enveloping.s3p.append(copy, *enveloping.bodies()), bytes)
    original = enveloping.through_s2()
    assert Pair(enveloping.s2, enveloping.s3p, copy).through_s2() == original
    assert original[2] == ([], MARK + b"looks like one")


@pytest.mark.parametrize("body", [MARK[:4], MARK + b"\xff", b"\xf5PEN\x02x", MARK + b"\x08\x05"])
def test_what_only_begins_like_an_envelope_is_refused(enveloping: Pair, body: bytes) -> None:
    reply = enveloping.s3p.append(enveloping.stream, b"good", body)
    assert isinstance(reply, S3PError)
    assert reply.code == "ERR_NOT_REPRESENTABLE"
    assert enveloping.s2.tail(enveloping.stream)["seq_num"] == 0
    assert isinstance(enveloping.s3p.append(enveloping.stream, b"good"), bytes)  # the connection is still there


def test_without_the_policy_the_mark_means_nothing(default: Pair) -> None:
    bodies = [MARK + b"\x1a\x01x", MARK, b"\xf5PEN\x02"]
    assert isinstance(default.s3p.append(default.stream, *bodies), bytes)
    assert default.bodies() == bodies
    assert default.through_s2() == [([], body) for body in bodies]


# ---- drop ------------------------------------------------------------------------------------------------------------


def test_drop(dropping: Pair) -> None:
    """Headers are dropped and the body stays; a record without a body, and a command, are left out."""
    ids(
        dropping,
        (10, record(b"x", HEADERS)),
        (20, record(b"")),
        (30, record(b"", HEADERS)),
        (40, record(b"tok", FENCE)),
        (50, record(b"plain")),
    )
    assert dropping.s3p.read(dropping.stream) == [(b"10-0", b"x"), (b"50-0", b"plain")]
    assert len(dropping.through_s2()) == 5  # nothing is lost to those who can carry it
