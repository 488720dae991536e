"""A gateway that ends: its clients are advised to reconnect, and lose nothing."""

import pytest
from support.http.h2_client import H2Connection
from support.process import GatewayProcess
from support.s2.client import S2Client, eventually, stream_path
from support.s2.frames import ADVISED, append_input

from penstock_proto import s2_pb2 as pb

BASIN = "drain-basin"


def test_sessions_are_advised_to_reconnect(fresh_gateway: GatewayProcess) -> None:
    """At once, not at the next heartbeat's time; what is appended meanwhile is stored."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin(BASIN)
    s2.ensure_stream("s")
    s2.append("s", "x")
    writers = [s2.append_session("s", "h1"), s2.append_session("s", "h2")]
    readers = [s2.read_session("s", "h1", seq_num=0), s2.read_session("s", "h2", seq_num=0)]
    for session in readers:
        assert session.batch().records
        assert not session.batch().records
    for session in writers:
        session.send(append_input(b"before"))
        frame = session.next()
        assert frame is not None and frame.flag == 0
    for session in readers:
        session.records(2)
    assert fresh_gateway.process is not None
    fresh_gateway.process.terminate()
    for session in readers:
        frame = session.next(3)
        assert frame is not None
        assert frame.flag & ADVISED and not frame.terminal, frame
        session.close()
    for session in writers:
        session.send(append_input(b"during"))
        frame = session.next(3)
        assert frame is not None
        assert frame.flag & ADVISED, frame
        assert pb.AppendAck.FromString(frame.payload).end.seq_num in (4, 5)
        session.stream.end()
        assert session.rest(3) == []
        session.close()
    assert fresh_gateway.process.wait(10) == 0
    fresh_gateway.start()
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port), BASIN)
    assert s2.bodies("s", seq_num=0) == ["x", "before", "before", "during", "during"]


@pytest.mark.slow
def test_new_requests_are_refused(fresh_gateway: GatewayProcess) -> None:
    """On a connection that is open already; a session there goes on for the grace time, and is then ended."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin(BASIN)
    s2.ensure_stream("s")
    tail = stream_path("s") + "/records/tail"
    with H2Connection(s2.address) as connection:
        session = s2.append_session("s", connection)
        assert session.stream.status == 200
        assert fresh_gateway.process is not None
        fresh_gateway.process.terminate()
        for _ in eventually(5):
            try:
                if s2.request("GET", tail).status == 503:
                    break  # accepted just before the listener was closed
            except OSError:
                break
        late = connection.open("GET", tail, s2.head())
        assert late.status == 503
        assert b'"server_draining"' in late.receive()
        session.send(append_input(b"x"))
        assert session.ack(1).end.seq_num == 1
        status, error = session.failure(6)
        assert (status, error["code"]) == (503, "server_draining")
        assert fresh_gateway.process.wait(3) == 0
