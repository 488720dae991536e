"""The API of older pages about S2: other paths, ways to choose a session, and forms of events."""

from collections.abc import Iterator

import pytest
from support.process import CONFIG, running_gateway
from support.s2.client import Http1Stream, S2Client, stream_path
from support.s2.frames import TERMINAL, Session, append_input, encode_frame

S2S = {"content-type": "s2s/proto", "accept": "s2s/proto"}


def test_paths(s2: S2Client, stream: str) -> None:
    """/v1/basins/{basin}/streams/{stream}/append and read, without any header of S2."""
    path = f"/v1/basins/{s2.basin}{stream_path(stream).removeprefix('/v1')}"
    anonymous = s2.of(None)
    ack = anonymous.send_json("POST", path + "/append", {"records": [{"body": "x"}]}).json()
    assert ack["end"]["seq_num"] == 1
    with Session(Http1Stream(s2.address, "POST", path + "/append", S2S)) as session:
        session.send(append_input(b"y"))
        assert session.ack().end.seq_num == 2
    records = anonymous.request("GET", path + "/read", seq_num=0).json()["records"]
    assert [record["body"] for record in records] == ["x", "y"]
    by_path = f"{path}/read?wait=300&seq_num=0", {"accept": "s2s/proto"}
    by_accept = stream_path(stream) + "/records?seq_num=0", s2.head({"accept": "s2s/proto"})
    for target, headers in (by_path, by_accept):
        with Session(Http1Stream(s2.address, "GET", target, headers)) as session:
            assert session.stream.headers["content-type"] == "s2s/proto"
            assert [record.body for record in session.batch().records] == [b"x", b"y"]
            assert not session.batch().records


@pytest.mark.parametrize("carrier", ["h1", "h2"])
def test_a_clients_terminal_frame_of_success_ends_the_session(s2: S2Client, stream: str, carrier: str) -> None:
    """Later inputs are not applied."""
    with s2.append_session(stream, carrier) as session:
        session.stream.send(encode_frame(append_input(b"good")) + encode_frame(b"\x00\xc8{}", TERMINAL))
        session.send(append_input(b"late"))
        assert session.ack().end.seq_num == 1
        assert session.rest() == []
    assert s2.bodies(stream, seq_num=0) == ["good"]


@pytest.fixture(scope="module")
def seed_dialect() -> Iterator[S2Client]:
    """A client of a gateway that speaks the older dialect of events."""
    with running_gateway(CONFIG.replace("[listeners.s2]", '[listeners.s2]\nsse_dialect = "seed"')) as process:
        yield S2Client(("127.0.0.1", process.s2_port)).ensure_basin("served-basin")


def test_the_dialect_of_events(seed_dialect: S2Client) -> None:
    """Colons in ids, empty pings, an event `done`, base64 by default, `utf8`."""
    s2 = seed_dialect
    s2.ensure_stream("seed")
    s2.append("seed", "a", "b")
    with s2.events("seed", seq_num=0) as events:
        batch = events.batch()
        assert batch.id == "1:2:18"
        assert [record["body"] for record in batch.json()["records"]] == ["YQ==", "Yg=="]
        ping = events.next(2)
        assert ping is not None
        assert (ping.name, ping.id, ping.data) == ("ping", "1:2:18", "")
    with s2.events("seed", headers={"s2-format": "utf8", "last-event-id": "0:1:9"}, count=2, bytes=100) as events:
        batch, done = events.rest()
        assert [record["body"] for record in batch.json()["records"]] == ["b"]
        assert batch.id == "1:2:18"
        assert (done.name, done.data) == ("done", "")
