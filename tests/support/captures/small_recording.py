"""A small recording by a real gateway with routes and clients of every protocol, for tests of capture readers."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zstandard
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s2.frames import ZSTD, append_input
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

__all__ = ["ROUTES", "Clients", "small_recording"]

ROUTES: Final = ("orders", "rest")
"""Routes of the gateway: streams called orders*, and all others. The last one leads to the embedded store too."""

_CONFIG: Final = (
    CONFIG
    + """
[recorder]
directory = "{data}/recordings"
rotate_bytes = @ROTATE@
compress = "@COMPRESS@"

[[routes]]
name = "orders"
match = "prefix"
stream = "orders"

[[routes]]
name = "rest"
"""
)


class Clients:
    """Clients of one gateway; each method opens its own connections and closes them."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._s2 = S2Client(("127.0.0.1", gateway.s2_port), BASIN)

    @property
    def recordings(self) -> Path:
        """The directory that is recorded into meanwhile."""
        return self._gateway.data / "recordings"

    def all(self, rounds: int = 3) -> None:
        """Use every protocol, with appends, deliveries and failures."""
        for say in (self.s3p, self.unary, self.sessions, self.segments):
            say(rounds)

    def s3p(self, rounds: int) -> None:
        """Two routes over one connection; an unknown command ends it."""
        with S3PClient(("127.0.0.1", self._gateway.s3p_port)) as client:
            for stream in ("orders-s3p", "other-s3p"):
                client.create(stream)
                for turn in range(rounds):
                    client.append(stream, b"s3p %d" % turn, b"\xff\x00 not text")
                client.read_all(stream)
            client.call("APPEND", "nowhere", [], [b"lost"])
            client.call("NOPE")

    def unary(self, rounds: int) -> None:
        """JSON over HTTP/1.1, events, and streams that are not there."""
        for turn in range(rounds):
            records = [{"body": f"json {turn}", "headers": [["kind", "a"], ["empty", ""]]}, {"body": ""}]
            self._s2.append_json("orders-json", {"records": records}).json()
        self._s2.read("orders-json", seq_num=0)
        self._s2.append_json("orders-json", {"records": [{"body": "refused"}], "match_seq_num": 99_999})
        self._s2.request("GET", "/v1/streams/none/nothing")
        with self._s2.events("orders-json", seq_num=0, count=2) as events:
            events.rest()

    def sessions(self, rounds: int) -> None:
        """S2S over HTTP/2 and HTTP/1.1, plain and compressed frames."""
        for carrier, stream in (("h2", "sessions"), ("h1", "orders-session")):
            with self._s2.append_session(stream, carrier) as session:
                for turn in range(rounds):
                    plain = append_input(*[b"s2s %d %d " % (turn, one) + b"x" * 300 for one in range(10)])
                    session.send(zstandard.compress(plain) if turn % 2 else plain, ZSTD if turn % 2 else 0)
                    session.ack()
                session.stream.end()
                session.rest()
            with self._s2.read_session(stream, carrier, seq_num=0, count=10 * rounds) as session:
                session.rest()

    def following(self, rounds: int) -> None:
        """Follow a stream to which another connection appends."""
        self._s2.append("orders-followed", "before")
        with self._s2.read_session("orders-followed", "h2", seq_num=0) as session:
            session.records(1)
            for turn in range(rounds):
                self._s2.append("orders-followed", f"live {turn}")
            session.records(rounds)

    def segments(self, rounds: int) -> None:
        """Write events, read them back, and ask for a segment that does not exist."""
        name = f"{BASIN}/orders-segment/0.#epoch.0"
        with ReleasedSocket(("127.0.0.1", self._gateway.segment_port)) as client:
            client.create(name)
            writer = client.writer(name)
            for turn in range(rounds):
                client.append(writer, [b"event %d" % turn, b"y" * 100], 2 * turn + 2)
            client.read(name, 0)
            client.read(f"{BASIN}/absent/0.#epoch.0", 0)

    def durable(self, rounds: int) -> None:
        """A stream of JSON and one of bytes, read at once and as events, and a stream that is not there."""
        json, octets = {"content-type": "application/json"}, {"content-type": "application/octet-stream"}
        connection = http.client.HTTPConnection("127.0.0.1", self._gateway.durable_port, timeout=20)
        for method, target, body, headers in (
            ("PUT", "orders-durable", b"[0]", json),
            *[("POST", "orders-durable", b'["n", {"turn": %d}]' % turn, json) for turn in range(rounds)],
            ("POST", "orders-durable", b"[1,", json),
            ("POST", "orders-durable", b"", {"stream-closed": "true"}),
            ("GET", "orders-durable?offset=-1&live=sse", b"", {}),
            ("PUT", "bytes", b"first", octets),
            ("POST", "bytes", b"\xff", octets),
            ("GET", "bytes", b"", {}),
            ("GET", "absent", b"", {}),
        ):
            connection.request(method, f"/v1/stream/{target}", body, headers)
            connection.getresponse().read()
        connection.close()


def small_recording(
    directory: Path,
    say: Callable[[Clients], None] = Clients.all,
    *,
    rotate_bytes: int = 0,
    compress: str = "none",
) -> Path:
    """The directory of a recording that is whole: the gateway has ended in order. `directory`: for all of it. `say`:
    what clients say meanwhile. `rotate_bytes`: files of that size; 0: one file. `compress`: `none` or `zstd`."""
    directory.mkdir(parents=True, exist_ok=True)
    config = _CONFIG.replace("@ROTATE@", str(rotate_bytes)).replace("@COMPRESS@", compress)
    with GatewayProcess(config, directory=directory) as gateway:
        say(Clients(gateway))
        assert gateway.terminate() == 0, gateway.log_tail()
    return directory / "data" / "recordings"
