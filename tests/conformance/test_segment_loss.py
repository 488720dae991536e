"""Records that segments cannot carry (headers, empty bodies, command records), under each policy (docs/loss.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s2.frames import record
from support.segment.client import DraftSocket, ReleasedSocket

from penstock_pravega.codec import join_events, released, split_events
from penstock_proto import s2_pb2 as pb

MARK = b"\xf5PEN\x01"
HEADERS = [(b"content-type", b"text/plain"), (b"\xff", b"")]
FENCE = [(b"", b"fence")]
_numbers = count()

CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:{{s2_port}}"

[listeners.segment]
bind = "127.0.0.1:{{segment_port}}"

[listeners.segment.loss]
headers = "{policy}"
empty_body = "{policy}"
command_records = "{policy}"

[listeners.segment.limits]
read_hold_seconds = 1

[store]
directory = "{{data}}"

[[store.basins]]
name = "{{basin}}"

[log]
format = "json"
"""


class Pair(NamedTuple):
    """One stream, as S2 and as the clients of segments know it."""

    process: GatewayProcess
    s2: S2Client
    released: ReleasedSocket
    draft: DraftSocket
    stream: str
    segment: str

    def append(self, *records: pb.AppendRecord) -> None:
        """Append through S2, one batch."""
        answer = self.s2.append_proto(self.stream, pb.AppendInput(records=records).SerializeToString())
        assert answer.status == 200, answer

    def write(self, *bodies: bytes) -> None:
        """Append events, one append."""
        self.released.append(self.released.writer(self.segment), bodies, len(bodies))

    def through_s2(self) -> list[tuple[list[tuple[bytes, bytes]], bytes]]:
        """Headers and bodies as S2 reads them."""
        records = self.s2.read_proto(self.stream, seq_num=0).records
        return [([(pair.name, pair.value) for pair in item.headers], item.body) for item in records]

    def events(self) -> list[bytes]:
        """All events, alike in both dialects."""
        content = self.released.content(self.segment)
        assert self.draft.content(self.segment) == content
        return split_events(content)


def pair_of(process: GatewayProcess) -> Iterator[Pair]:
    address = "127.0.0.1", process.segment_port
    stream = f"segment-loss-{next(_numbers)}"
    segment = f"{BASIN}/{stream}/0.#epoch.0"
    with ReleasedSocket(address) as one, DraftSocket(address) as two:
        one.create(segment)
        yield Pair(process, S2Client(("127.0.0.1", process.s2_port), BASIN), one, two, stream, segment)


@pytest.fixture(scope="module")
def gateways(gateway: GatewayProcess) -> Iterator[Callable[[str], GatewayProcess]]:
    """Returns the gateway with a policy; "default": that of all tests."""
    with ExitStack() as stack:
        started = {"default": gateway}

        def gateway_with(policy: str) -> GatewayProcess:
            if policy not in started:
                started[policy] = stack.enter_context(running_gateway(CONFIG.format(policy=policy)))
            return started[policy]

        yield gateway_with


def pair_with(policy: str) -> Any:
    """Return a fixture: a new stream of the gateway with a policy."""

    def pair(gateways: Callable[[str], GatewayProcess]) -> Iterator[Pair]:
        yield from pair_of(gateways(policy))

    return pytest.fixture(pair)


default, refusing = pair_with("default"), pair_with("refuse")
enveloping, dropping = pair_with("envelope"), pair_with("drop")


def refused(reply: Any, seq_num: int) -> None:
    """Must be the error that names the record which cannot be carried."""
    assert isinstance(reply, released.ErrorMessage), reply
    assert f"record {seq_num} " in reply.message or reply.message.endswith(f"record {seq_num}"), reply


AWKWARD = [record(b"x", HEADERS), record(b""), record(b"", HEADERS), record(b"tok", FENCE)]
BEFORE = join_events([b"before"])


# ---- the default: headers are refused, empty bodies and commands are left out ----------------------------------------


def test_default_refuses_headers(default: Pair) -> None:
    """Earlier records are delivered, and reads that begin behind them succeed: their bodies still take up bytes."""
    default.append(record(b"before"), record(b"x", HEADERS), record(b"after"))
    assert default.released.read(default.segment, 0).data == BEFORE
    refused(default.released.read(default.segment, 14), 1)
    refused(default.released.read(default.segment, 18), 1)
    assert default.released.read(default.segment, 23).data == join_events([b"after"])
    with DraftSocket(("127.0.0.1", default.process.segment_port)) as client:
        assert client.read(default.segment, 0).data == BEFORE
        with pytest.raises(EOFError):  # the draft has no words for it
            client.read(default.segment, 14)
    assert default.released.info(default.segment).write_offset == 14 + 9 + 13


def test_default_leaves_out_what_has_no_body(default: Pair) -> None:
    """An empty record is never an empty event; commands are not data."""
    default.append(record(b"one"), record(b""), record(b"tok", FENCE), record(b"two"), record(b"", FENCE), record(b"3"))
    assert default.events() == [b"one", b"two", b"3"]
    assert len(default.through_s2()) == 6


def test_many_left_out_in_a_row_do_not_end_a_read(default: Pair) -> None:
    """No empty answer, which would look like the tail."""
    for _ in range(3):
        default.append(*[record(b"", FENCE)] * 1000)
    default.append(record(b"at last"))
    assert default.released.read(default.segment, 0).data == join_events([b"at last"])


def test_what_is_left_out_does_not_end_a_wait(default: Pair) -> None:
    default.released.send(released.ReadSegment(default.segment, 0, 1000, "", 1))
    default.append(record(b""), record(b"tok", FENCE))
    with pytest.raises(TimeoutError):
        default.released.reply(0.3)
    default.append(record(b"real"))
    assert default.released.reply(5).data == join_events([b"real"])


# ---- refuse everything -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("awkward", AWKWARD, ids=["headers", "empty body", "headers, empty body", "command"])
def test_refuse(refusing: Pair, awkward: pb.AppendRecord) -> None:
    refusing.append(record(b"before"), awkward, record(b"after"))
    assert refusing.released.read(refusing.segment, 0).data == BEFORE
    refused(refusing.released.read(refusing.segment, 14), 1)
    refusing.released.send(released.KeepAlive())
    assert refusing.released.reply() == released.KeepAlive()
    length = refusing.released.info(refusing.segment).write_offset
    assert refusing.released.read(refusing.segment, length - 12).data == join_events([b"after"])[1:]


# ---- envelopes -------------------------------------------------------------------------------------------------------


def opened(body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of an envelope, by hand: mark, version 1, an AppendRecord."""
    assert body.startswith(MARK), body
    inside = pb.AppendRecord.FromString(body[len(MARK) :])
    assert not inside.HasField("timestamp")
    return [(pair.name, pair.value) for pair in inside.headers], inside.body


def test_envelopes_carry_everything(enveloping: Pair) -> None:
    enveloping.append(record(b"plain"), *AWKWARD, record(b"plain"))
    first, *wrapped, last = enveloping.events()
    assert (first, last) == (b"plain", b"plain")
    assert [opened(body) for body in wrapped] == enveloping.through_s2()[1:-1]


def test_envelopes_come_back(enveloping: Pair) -> None:
    """A record read by a segment client and appended to another segment is the same for S2, and byte for byte."""
    enveloping.append(*AWKWARD, record(MARK + b"looks like one"), record(b"plain"))
    events = enveloping.events()
    stream = f"{enveloping.stream}-copy"
    copy = enveloping._replace(stream=stream, segment=f"{BASIN}/{stream}/0.#epoch.0")
    copy.released.create(copy.segment)
    copy.write(*events)
    assert copy.through_s2() == enveloping.through_s2()
    assert copy.events() == events


@pytest.mark.parametrize("body", [MARK[:4], MARK + b"\xff", b"\xf5PEN\x02x", MARK + b"\x08\x05", MARK])
def test_what_only_looks_like_an_envelope_is_a_body(enveloping: Pair, body: bytes) -> None:
    """No append is refused for it, and its bytes stay as they are."""
    enveloping.write(b"good", body, b"", b"more")
    assert enveloping.events() == [b"good", body, b"", b"more"]
    found = enveloping.through_s2()
    if body != MARK:  # of nothing: that is the envelope of an empty record
        assert found == [([], one) for one in (b"good", body, b"", b"more")]


def test_without_the_policy_the_mark_means_nothing(default: Pair) -> None:
    bodies = [MARK + b"\x1a\x01x", MARK, b"\xf5PEN\x02"]
    default.write(*bodies)
    default.append(*map(record, bodies))
    assert default.events() == bodies * 2
    assert default.through_s2() == [([], body) for body in bodies * 2]


# ---- drop ------------------------------------------------------------------------------------------------------------


def test_drop(dropping: Pair) -> None:
    """Headers are dropped and the body stays; a record without a body, and a command, are left out, and counted."""
    before = len(dropping.process.events("records_dropped"))
    dropping.append(record(b"plain"), *AWKWARD, record(b"plain"))
    assert dropping.released.read(dropping.segment, 0).data == join_events([b"plain", b"x", b"plain"])
    dropping.released.expect(released.KeepAlive, released.KeepAlive())  # the line follows the reply
    (line,) = dropping.process.events("records_dropped")[before:]
    assert line["stream"] == f"{BASIN}/{dropping.stream}"
    # A record that loses its headers, and then has nothing left, counts as both.
    assert (line["headers"], line["empty_body"], line["command"]) == (2, 2, 1)
    assert len(dropping.through_s2()) == 6  # nothing is lost to those who can carry it
    assert dropping.events() == [b"plain", b"x", b"plain"]


# ---- what stays when the policy changes ------------------------------------------------------------------------------


def test_bytes_never_change(tmp_path: Path) -> None:
    """Offsets are for ever: an envelope stays one, and what was left out is not there later."""
    before = b""
    for policy in ("envelope", "drop", "envelope"):
        with running_gateway(CONFIG.format(policy=policy), directory=tmp_path) as process:
            s2 = S2Client(("127.0.0.1", process.s2_port), BASIN)
            answer = s2.append_proto("s", pb.AppendInput(records=AWKWARD[:2]).SerializeToString())
            assert answer.status == 200, answer
            with ReleasedSocket(("127.0.0.1", process.segment_port)) as client:
                content = client.content(f"{BASIN}/s")
        assert content.startswith(before)
        before = content
    events = split_events(before)
    assert [event.startswith(MARK) for event in events] == [True, True, False, True, True]
    assert events[2] == b"x"
