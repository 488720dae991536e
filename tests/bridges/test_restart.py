"""The gateway is killed and restarted, with a server behind it: all acknowledgements remain true."""

from __future__ import annotations

import pytest
from support.bridges import DIRECT, DRAFT, SECOND, Bridge
from support.bridges.fronts import Front, Record, Seen
from support.bridges.plain_fronts import FRONTS
from support.process import GatewayProcess


def views(gateway: GatewayProcess, stream: str) -> dict[str, list[Seen]]:
    """The stream through every front, with positions."""
    found = {}
    for name, front_class in FRONTS.items():
        front = front_class(gateway, stream)
        found[name] = front.read(front.start())
        front.close()
    return found


SLOW = [pytest.param(bridge, marks=pytest.mark.long) for bridge in (DIRECT, DRAFT)]


@pytest.mark.parametrize("bridge", [*SECOND.values(), *SLOW], ids=str)
def test_positions_are_what_they_were(bridge: Bridge) -> None:
    """Sequence numbers, timestamps, identifiers and offsets, after `kill -9` of the gateway; and appends go on."""
    with bridge.running() as gateway:
        before: dict[str, dict[str, list[Seen]]] = {}
        for name in ("S2S", "S3P", "segment draft"):
            front = FRONTS[name](gateway, name.replace(" ", "-"))
            front.create()
            append(front, 1)
            append(front, 4)
            front.close()
            before[front.stream] = views(gateway, front.stream)
        gateway.restart(kill=True)
        for stream, found in before.items():
            assert views(gateway, stream) == found
            append(FRONTS["protobuf"](gateway, stream), 3)
            for name, seen in views(gateway, stream).items():
                assert seen[: len(found[name])] == found[name]
                assert [one.record.body for one in seen[-3:]] == [b"body 0", b"body 1", b"body 2"]


def append(front: Front, count: int) -> None:
    headers = () if front.plain else ((b"k", b"v"),)
    front.append([Record(b"body %d" % number, headers) for number in range(count)])
