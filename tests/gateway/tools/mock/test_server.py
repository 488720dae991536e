"""A mock that listens, and the recording that it was made of played to it: the one must understand the other."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
import trio
from support.captures.dialogues import conversation, events
from support.captures.replay import talk as s3p_talk
from support.captures.replay import two_clients
from support.s2.whole_api import Talk, talk
from support.tls.certificates import needs_openssl, self_signed

from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.tools.mock.report import MockReport
from penstock.tools.mock.script import Script
from penstock.tools.mock.server import MockSettings, mock_tls, serve_mock
from penstock.tools.replay.replaying import Replay, ReplaySettings
from penstock.tools.replay.report import ReplaySummary
from penstock.tools.target.back import TargetOptions
from penstock.tools.target.url import parse_target
from penstock_analysis.capture import CaptureEvent

ONCE = MockSettings(strict=True, once=True)


async def round_trip(
    recorded: Sequence[CaptureEvent], scheme: str, certificate: tuple[str, str] | None = None
) -> tuple[ReplaySummary, MockReport]:
    """The recorded clients and the recorded server, over loopback; with a certificate over TLS."""
    report = MockReport()

    async def again() -> AsyncGenerator[CaptureEvent, None]:
        for event in recorded:
            yield event

    with Script() as script:
        script.load(recorded)
        tls = None if certificate is None else mock_tls(*certificate, script)
        where: list[Address] = []
        listening = trio.Event()

        def told(addresses: Sequence[Address]) -> None:
            where.extend(addresses)
            listening.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_mock, Address("127.0.0.1", 0), script, ONCE, report, told, tls)
            await listening.wait()
            options = TargetOptions(tls_ca=None if certificate is None else certificate[0])
            target = parse_target(f"{scheme}://{where[0]}")
            summary = await Replay(target, again, ReplaySettings(speed=math.inf, options=options)).run()
    return summary, report


@pytest.fixture(params=["http/1.1", "h2"])
def recorded(request: pytest.FixtureRequest) -> Talk:
    return talk(request.param)


async def test_all_of_s2(recorded: Talk) -> None:
    summary, report = await round_trip(list(events(conversation("s2"), recorded.said)), "s2")
    assert summary.same, list(summary.lines())
    assert report.same, list(report.lines())


@needs_openssl
async def test_all_of_s2_over_tls(recorded: Talk, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    summary, report = await round_trip(list(events(conversation("s2"), recorded.said)), "s2+tls", certificate)
    assert summary.same, list(summary.lines())
    assert report.same, list(report.lines())


async def test_s3p() -> None:
    summary, report = await round_trip(s3p_talk().events, "s3p")
    assert summary.same and report.same
    summary, report = await round_trip(two_clients().events, "s3p")
    assert summary.same and report.same
    assert (report.connections, report.played) == (3, 2), "the replay connects once to see that there is a server"


async def test_where_it_cannot_listen(tmp_path: Path) -> None:
    with Script() as script:
        with pytest.raises(CannotStart, match=r"cannot use .*nothing.pem"):
            mock_tls(str(tmp_path / "nothing.pem"), None, script)
        with pytest.raises(CannotStart, match=r"cannot listen on 192\.0\.2\.1:1"):
            await serve_mock(Address("192.0.2.1", 1), script, ONCE, MockReport(), lambda _where: None)
