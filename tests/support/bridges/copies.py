"""The mirror of a real gateway, and its copy at a server."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

from support.management import ask, management_port
from support.process import BASIN, GatewayProcess
from support.real_backs import BackServer
from support.segment.client import ReleasedSocket

from penstock.model.byte_events import split_events
from penstock_proto import s2_pb2

__all__ = ["bodies_at_server", "mirror_of", "until_compared"]

PATIENCE_SECONDS = 30.0


def mirror_of(gateway: GatewayProcess) -> dict[str, Any]:
    """Return state and counts of the mirror of the gateway's first route."""
    status, page = ask(management_port(gateway), "/routes")
    assert status == 200
    mirror: dict[str, Any] = page["routes"][0]["mirror"]
    return mirror


def until_compared(gateway: GatewayProcess, count: int) -> dict[str, Any]:
    """Wait until `count` records are compared, without differences, and return the mirror's counts."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (mirror := mirror_of(gateway))["records_compared"] < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert mirror["records_compared"] == count, mirror
    assert not any(mirror["differences"].values()), mirror
    return mirror


def bodies_at_server(server: BackServer, stream: str) -> list[bytes]:
    """Read a stream from a server of kind `durable` or `segment` without the gateway; return the bodies in order."""
    if server.kind == "segment":
        with ReleasedSocket(server.address) as client:
            return split_events(client.content(f"{BASIN}/{stream}/0.#epoch.0"))
    url = f"http://{server.address[0]}:{server.address[1]}/v1/stream/{stream}"
    content, offset, up_to_date = b"", "-1", None
    while up_to_date is None:
        with urllib.request.urlopen(f"{url}?offset={offset}", timeout=20) as response:
            content += response.read()
            offset, up_to_date = response.headers["stream-next-offset"], response.headers["stream-up-to-date"]
    return [record.body for record in s2_pb2.AppendInput.FromString(content).records]
