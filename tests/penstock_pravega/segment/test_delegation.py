"""Delegation tokens and passwords."""

from __future__ import annotations

import base64
import contextvars
import stat
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
import pytest
import trio
from msgspec.structs import replace

from penstock.core.errors import CannotStart
from penstock.model.failures import FailureCode, OperationFailed
from penstock.routing.access.passwords import MOST_WAITING, Passwords, basic_credentials, check_hash, hash_password
from penstock_pravega.codec import SegmentMessage, released
from penstock_pravega.segment.config import SegmentListener
from penstock_pravega.segment.delegation import KEY_BYTES, READ, Delegation, TokenRejected, load_key
from penstock_pravega.segment.front.checkpoint import RequestCheck
from penstock_pravega.segment.front.connection import _HANDLERS
from penstock_pravega.segment.opening import open_delegation

KEY = b"k" * KEY_BYTES


class Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def test_a_token_is_what_pravega_has() -> None:
    """For each of its names; and its middle part is ordinary base64, which its clients take it for."""
    delegation = Delegation(KEY, 600, Clock())
    for subject in ("analytics", "a?b>c~d\x7f", "ä?", "~~~~", ">>>"):
        token = delegation.issue(subject, "S", "s.t-r_eam")
        assert not {"-", "_"} & set(token.split(".")[1])
        claims = jwt.decode(token, KEY, algorithms=["HS256"], audience="segmentstore", options={"verify_exp": False})
        assert claims == {
            "sub": subject,
            "aud": "segmentstore",
            "iat": 1_700_000_000,
            "exp": 1_700_000_600,
            "prn::/scope:S/stream:s.t-r_eam": "READ_UPDATE",
        }


def test_what_a_token_is_good_for() -> None:
    delegation = Delegation(KEY, 600, Clock())
    found = delegation.check(delegation.issue("me", "S", "s"))
    assert found.subject == "me"
    for segment in ("S/s/0.#epoch.0", "S/s", "S/s/0.#epoch.0#transaction.0123"):
        assert found.allows(segment, changes=True)
    assert found.allows("S/s_kvtable/0.#epoch.0", changes=True)  # a key-value table's
    for segment in ("S/sx/0.#epoch.0", "S/sx_kvtable/0.#epoch.0", "T/s/0", "S", "", "_system/s/0", "S//s"):
        assert not found.allows(segment, changes=False)
    only_read = delegation.check(delegation.issue("me", "S", "s", READ))
    assert only_read.allows("S/s/0", changes=False)
    assert not only_read.allows("S/s/0", changes=True)


def test_tokens_that_are_no_good() -> None:
    clock = Clock()
    delegation = Delegation(KEY, 600, clock)
    token = delegation.issue("me", "S", "s")
    header, payload, signature = token.split(".")
    without = jwt.encode({"sub": "me", "aud": "segmentstore"}, KEY)
    elsewhere = jwt.encode({"sub": "me", "aud": "controller", "exp": 9_999_999_999}, KEY)
    unsigned = jwt.encode({"sub": "me", "aud": "segmentstore", "exp": 9_999_999_999}, None, algorithm="none")
    other = Delegation(b"x" * 32, 600, clock).issue("me", "S", "s")
    for bad in ("", "a.b.c", f"{header}.{payload}.", f"{header}.{payload}.{signature[:-4]}AAAA", without, elsewhere):
        with pytest.raises(TokenRejected) as rejected:
            delegation.check(bad)
        assert not rejected.value.expired
    for bad in (unsigned, other):
        with pytest.raises(TokenRejected):
            delegation.check(bad)
    clock.ms += 599_999
    delegation.check(token)
    clock.ms += 1
    with pytest.raises(TokenRejected) as rejected:
        delegation.check(token)
    assert rejected.value.expired


@pytest.mark.parametrize("kind", [*_HANDLERS, released.SetupAppend, released.ReadSegment])
def test_each_request_s_segments_are_looked_at(kind: type[SegmentMessage]) -> None:
    """Also those that are refused later: nothing but a refusal comes of any."""
    delegation = Delegation(KEY, 600, Clock())
    token = delegation.issue("me", "S", "s")
    names = set(kind.__struct_fields__)

    def check(mine: str, *others: str) -> None:
        said = dict.fromkeys(names, ()) | {"delegation_token": token, "writer_id": UUID(int=1), "segment": mine}
        said |= {"target": mine, "parent_segment": mine, "source": (mine, *others)[-1], "sources": (mine, *others)}
        request: Any = kind(**{name: value for name, value in said.items() if name in names})
        contextvars.copy_context().run(RequestCheck().check, delegation, request)

    check("S/s/0")
    if kind is not released.FlushToStorage:
        with pytest.raises(TokenRejected, match="does not permit"):
            check("S/sx/0")
    if kind in (released.MergeSegments, released.MergeSegmentsBatch):
        with pytest.raises(TokenRejected, match="does not permit"):
            check("S/s/0", "T/s/0")


def test_the_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "data" / "delegation.key"
    key = load_key(path)
    assert len(key) == KEY_BYTES
    assert load_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["delegation.key"]
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match="at least 32 bytes"):
        load_key(path)


async def test_passwords() -> None:
    passwords = Passwords({"ana": ("analytics", hash_password("s:ecret")), "bob": ("others", hash_password(""))})
    for _ in range(2):  # the second time it is remembered
        assert await passwords.identity("ana", "s:ecret") == "analytics"
        assert await passwords.identity("bob", "") == "others"
        for name, password in (("ana", ""), ("ana", "secret"), ("bob", "s:ecret"), ("", ""), ("nobody", "x")):
            assert await passwords.identity(name, password) is None


async def test_who_guesses_is_not_waited_for() -> None:
    """Wrong passwords are checked one by one, and only a limited number wait; known clients need not wait."""
    passwords = Passwords({"ana": ("analytics", hash_password("secret"))})
    assert await passwords.identity("ana", "secret") == "analytics"
    refused = 0

    async def guess(number: int) -> None:
        nonlocal refused
        try:
            assert await passwords.identity("ana", str(number)) is None
        except OperationFailed as error:
            assert error.failure.code is FailureCode.RATE_LIMITED
            refused += 1
            assert await passwords.identity("ana", "secret") == "analytics"
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for number in range(MOST_WAITING + 2):
            nursery.start_soon(guess, number)
    assert refused == 1


def test_hashes_are_salted_and_checked() -> None:
    one, other = hash_password("same"), hash_password("same")
    assert one != other
    check_hash(one)
    n, salt = "16384:8:1", base64.b64encode(b"salt").decode()
    long = base64.b64encode(bytes(32)).decode()
    for bad in ("", "secret", f"scrypt:{n}:{salt}:", f"bcrypt:{n}:{salt}:{long}", f"scrypt:1048576:8:1:{salt}:{long}"):
        with pytest.raises(ValueError, match="not a password hash"):
            check_hash(bad)


def test_basic_credentials() -> None:
    def header(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    assert basic_credentials(header("a:b:c")) == ("a", "b:c")
    assert basic_credentials(header("ä:")) == ("ä", "")
    for bad in (None, "", "Basic", "Basic !", header("nothing"), "Bearer x", "Basic /w=="):
        assert basic_credentials(bad) is None


def test_gateways_without_a_store_must_be_given_the_key(tmp_path: Path) -> None:
    """Each would make one of its own, and refuse the tokens of the others."""
    listener = SegmentListener(delegation_tokens=True)
    with pytest.raises(CannotStart, match="give the key that all gateways have"):
        open_delegation("", listener)
    path = tmp_path / "delegation.key"
    path.write_bytes(KEY)
    assert open_delegation("", replace(listener, delegation_key_file=str(path))) is not None
