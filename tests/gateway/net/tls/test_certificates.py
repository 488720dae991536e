"""Certificate files that change: the certificates in use afterwards, log lines, and expiry."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from support.tls import client_context, greet
from support.tls.authority import Authority, Issued

from penstock.core.errors import CannotStart
from penstock.net.tls import CERTIFICATES, Certificates, ClientTls, Pair, ServerFiles, ServerTls
from penstock.net.tls.certificates import POLL_SECONDS
from penstock.observe.metrics.families import CERTIFICATE_EXPIRY
from penstock.observe.metrics.series import looked_up

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def place(authority: Authority, tmp_path: Path) -> Callable[..., Issued]:
    """Puts a certificate called `used.pem` there, in the stead of the one before."""

    def put(cn: str, **said: Any) -> Issued:
        return authority.issue("used", "server.example", cn=cn, to=tmp_path, **said)

    return put


@pytest.fixture
def tls(place: Callable[..., Issued]) -> ServerTls:
    used = place("first")
    return ServerTls("listeners.test", ServerFiles(pair=Pair(used.certificate, used.key)))


def shown(tls: ServerTls) -> list[str]:
    return [about.subject for _file, about in tls.described()]


def write(file: str, text: str) -> None:
    Path(file).write_text(text)


def remove(file: str) -> None:
    Path(file).unlink()


async def looked(times: int) -> list[dict[str, Any]]:
    """Wait until the files were checked `times` times, and return what was logged. For the autojump clock."""
    with capture_logs() as logs:
        await trio.sleep(POLL_SECONDS * (times + 0.5))
    return [line for line in logs if line["event"].startswith("tls_")]


async def test_a_new_certificate_is_shown_to_new_clients(
    authority: Authority,
    tls: ServerTls,
    place: Callable[..., Issued],
    autojump_clock: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    context = client_context(authority)
    async with CERTIFICATES.watched():
        assert await looked(3) == []
        old = tls.context
        used = place("second")
        (said,) = await looked(3)
        assert (said["event"], said["owner"]) == ("tls_reloaded", "listeners.test")
        assert said["files"] == [used.certificate, used.key]
        assert tls.context is not old
        assert (await greet(tls, context)).shown == "second"
        assert await looked(3) == []


async def test_a_broken_pair_changes_nothing_and_is_told_once(
    tls: ServerTls, place: Callable[..., Issued], autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    async with CERTIFICATES.watched():
        old = tls.context
        write(place("second").certificate, "half of a certif")
        (said,) = await looked(5)
        assert (said["event"], said["owner"], said["log_level"]) == ("tls_not_reloaded", "listeners.test", "error")
        assert "used.pem and " in said["reason"] and "not a PEM certificate chain" in said["reason"]
        assert tls.context is old and shown(tls) == ["CN=first"]
        remove(place("third").certificate)
        (said,) = await looked(5)
        assert "No such file or directory" in said["reason"]
        place("fourth")
        assert [one["event"] for one in await looked(3)] == ["tls_reloaded"]
        assert shown(tls) == ["CN=fourth"]


async def test_a_certificate_and_its_key_may_come_one_after_the_other(
    tls: ServerTls,
    authority: Authority,
    tmp_path: Path,
    autojump_clock: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    new = authority.issue("new", "server.example", cn="second")
    async with CERTIFICATES.watched():
        await looked(1)
        shutil.copy(new.certificate, tmp_path / "used.pem")
        assert await looked(0) == []
        await trio.sleep(POLL_SECONDS / 2)  # it has been seen once
        shutil.copy(new.key, tmp_path / "used-key.pem")
        assert [one["event"] for one in await looked(3)] == ["tls_reloaded"]
        assert shown(tls) == ["CN=second"]


async def test_a_symbolic_link_may_lead_elsewhere(
    authority: Authority, tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kubernetes secrets: the files are links into a directory that is a link itself."""
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    for cn in ("first", "second"):
        (tmp_path / cn).mkdir()
        authority.issue("tls", "server.example", cn=cn, to=tmp_path / cn)
    (tmp_path / "data").symlink_to("first")
    for file in ("tls.pem", "tls-key.pem"):
        (tmp_path / file).symlink_to(Path("data", file))
    tls = ServerTls("listeners.test", ServerFiles(pair=Pair(str(tmp_path / "tls.pem"), str(tmp_path / "tls-key.pem"))))
    async with CERTIFICATES.watched():
        (tmp_path / "data.new").symlink_to("second")
        (tmp_path / "data.new").rename(tmp_path / "data")
        assert [one["event"] for one in await looked(3)] == ["tls_reloaded"]
    assert shown(tls) == ["CN=second"]


async def test_a_reload_reads_everything_at_once(tls: ServerTls, place: Callable[..., Issued]) -> None:
    place("second")
    outcomes = [one for one in await CERTIFICATES.reload() if one.owner == "listeners.test"]
    assert [one.reason for one in outcomes] == [None]
    assert shown(tls) == ["CN=second"]
    write(place("third").key, "nothing")
    with capture_logs() as logs:
        (outcome,) = [one for one in await CERTIFICATES.reload() if one.owner == "listeners.test"]
    assert outcome.reason is not None and "used-key.pem" in outcome.reason
    assert [line["event"] for line in logs] == ["tls_not_reloaded"]
    assert shown(tls) == ["CN=second"]


async def test_who_is_revoked_from_now_on(authority: Authority, tls: ServerTls, tmp_path: Path) -> None:
    good = authority.issue("good", "a.example")
    authority.revoke()
    files = ServerFiles(
        pair=Pair(str(tmp_path / "used.pem"), str(tmp_path / "used-key.pem")),
        client_ca=authority.ca,
        client_crl=authority.crl,
    )
    tls = ServerTls("listeners.test", files)
    context = client_context(authority, good)
    assert (await greet(tls, context)).served == [""]
    authority.revoke(good)
    await CERTIFICATES.reload()
    assert (await greet(tls, context)).served == []
    authority.revoke()


async def test_a_client_shows_its_new_certificate(authority: Authority, tls: ServerTls, tmp_path: Path) -> None:
    """And trusts new authorities."""
    other = Authority(tmp_path / "other", "other")
    mine = other.issue("mine", "a.example")
    trusted = tmp_path / "trusted.pem"
    shutil.copy(other.ca, trusted)
    client = ClientTls(str(trusted), *mine.pair, owner="backs.lite")
    server = ServerTls("listeners.test", ServerFiles(pair=tls._files.pair, client_ca=authority.ca))
    assert (await greet(server, client.context)).error is not None
    shutil.copy(authority.ca, trusted)
    authority.issue("mine", "a.example", to=tmp_path / "other")
    assert [one.reason for one in await CERTIFICATES.reload() if one.owner == "backs.lite"] == [None]
    assert (await greet(server, client.context)).served == [""]
    old = client.context
    trusted.write_text("nothing")
    (reason,) = [one.reason for one in await CERTIFICATES.reload() if one.owner == "backs.lite"]
    assert reason is not None and "authorities in " in reason and client.context is old


async def test_what_is_in_use_says_when_it_ends(authority: Authority, place: Callable[..., Issued]) -> None:
    used = place("ends", until=3 * DAY)
    authority.revoke(until=2 * DAY)
    files = ServerFiles(pair=Pair(used.certificate, used.key), client_ca=authority.ca, client_crl=authority.crl)
    tls = ServerTls("listeners.ends", files)
    client = ClientTls(authority.ca, used.certificate, used.key, "backs.ends")
    found = [one for one in CERTIFICATES.expiries() if one.owner.endswith(".ends")]
    assert [(one.owner, one.file, one.subject) for one in found] == [
        ("listeners.ends", authority.crl, "CN=authority"),
        ("backs.ends", used.certificate, "CN=ends"),
        ("listeners.ends", used.certificate, "CN=ends"),
        ("listeners.ends", authority.ca, "CN=authority"),
    ]
    days = [round((one.until - time.time()) / 86_400) for one in found]
    assert days == [2, 3, 3, 100]
    with capture_logs() as logs:
        async with CERTIFICATES.watched():
            await trio.testing.wait_all_tasks_blocked()
            samples = looked_up()[CERTIFICATE_EXPIRY.name]
    assert samples["listeners.ends", used.certificate, "CN=ends"] == found[1].until
    warned = [line for line in logs if line["event"] == "certificate_expires" and line["owner"].endswith(".ends")]
    assert [(line["file"], line["days_left"]) for line in warned] == [
        (used.certificate, 3.0),
        (used.certificate, 3.0),
    ]
    authority.revoke(until=DAY / 2)
    with capture_logs() as logs:
        await CERTIFICATES.reload()
    assert [line["file"] for line in logs if line.get("days_left") == 0.5] == [authority.crl]
    del tls, client


async def test_what_has_ended_is_told_too(place: Callable[..., Issued]) -> None:
    used = place("over", until=-DAY)
    tls = ServerTls("listeners.over", ServerFiles(pair=Pair(used.certificate, used.key)))
    with capture_logs() as logs:
        async with CERTIFICATES.watched():
            await trio.testing.wait_all_tasks_blocked()
    told = [(line["event"], line["days_left"]) for line in logs if line.get("owner") == "listeners.over"]
    assert told == [("certificate_expired", -1.0)]
    del tls


async def test_unused_entries_are_forgotten(place: Callable[..., Issued]) -> None:
    used = place("short")
    tls = ServerTls("listeners.short", ServerFiles(pair=Pair(used.certificate, used.key)))
    assert any(one.owner == "listeners.short" for one in CERTIFICATES.expiries())
    del tls
    assert not any(one.owner == "listeners.short" for one in CERTIFICATES.expiries())


async def test_what_the_block_raises_is_raised_as_it_is() -> None:
    cause = OSError("the cause")
    with pytest.raises(CannotStart, match="as it is") as raised:
        async with Certificates().watched():
            raise CannotStart("as it is") from cause
    assert raised.value.__cause__ is cause


async def _at_once(function: Callable[[], Any]) -> Any:
    """Instead of a thread, for which the autojump clock would not wait."""
    await trio.lowlevel.checkpoint()
    return function()
