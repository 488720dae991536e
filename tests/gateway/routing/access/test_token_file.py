"""The file of access tokens: hashes only, several processes, and what is no such file."""

from __future__ import annotations

import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from support.access import TokensOf

from penstock.core.scopes import FULL_SCOPE
from penstock.model.access_tokens import AccessTokenInfo
from penstock.model.failures import FailureCode, OperationFailed
from penstock.routing.access.authority import Authority, FileOfTokens
from penstock.routing.access.token_file import TokenFile, TokenFileError, parse_token


@pytest.fixture
def tokens(tmp_path: Path) -> TokensOf:
    return TokensOf(tmp_path / "data")


@pytest.fixture
def authority(tokens: TokensOf) -> Iterator[Authority]:
    with closing(Authority(FileOfTokens(tokens.path))) as authority:
        yield authority


def refusal(authority: Authority, token: str) -> FailureCode:
    with pytest.raises(OperationFailed) as refused:
        authority.grant(token)
    return refused.value.failure.code


def test_the_file_is_its_owners_and_has_no_secret(tokens: TokensOf) -> None:
    token = tokens.issue("a")
    assert parse_token(token) is not None
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.path.parent.stat().st_mode) == 0o700
    (key, digest, info) = sqlite3.connect(tokens.path).execute("SELECT key, digest, info FROM tokens").fetchone()
    secret = token.partition(f"{key}_")[2]
    assert len(secret) >= 32
    assert len(digest) == 32
    assert secret not in info


def test_a_grant_says_what_was_issued(tokens: TokensOf, authority: Authority) -> None:
    grant = authority.grant(tokens.issue("a", FULL_SCOPE, seconds=60))
    assert grant.info.id == "a"
    assert authority.lapsed(grant) is None
    assert authority.grant(tokens.issue("b")).expires_ms is None


def test_what_is_unknown_revoked_or_expired(tokens: TokensOf, authority: Authority) -> None:
    token = tokens.issue("a")
    grant = authority.grant(token)
    assert refusal(authority, "") is FailureCode.AUTHN
    assert refusal(authority, token + "A") is FailureCode.AUTHN
    assert refusal(authority, token.replace(token[-3:], "---")) is FailureCode.AUTHN
    assert refusal(authority, tokens.issue("old", seconds=-1)) is FailureCode.PERMISSION_DENIED
    tokens.revoke("a")
    lapsed = authority.lapsed(grant)
    assert lapsed is not None
    assert lapsed.code is FailureCode.AUTHN
    assert refusal(authority, token) is FailureCode.AUTHN


def test_ids_are_taken_until_they_are_revoked_or_over(tokens: TokensOf) -> None:
    tokens.issue("a")
    with pytest.raises(OperationFailed, match="there is an access token a already"):
        tokens.issue("a")
    tokens.revoke("a")
    tokens.issue("a", seconds=-1)
    tokens.issue("a")
    with pytest.raises(OperationFailed, match="there is no access token b"):
        tokens.revoke("b")


def test_listings(tokens: TokensOf) -> None:
    for name in ("b", "a/2", "a/1", "a%", "ä"):
        tokens.issue(name)
    with closing(TokenFile(tokens.path)) as file:
        assert [one.id for one in file.page("a/").items] == ["a/1", "a/2"]
        assert [one.id for one in file.page().items] == ["a%", "a/1", "a/2", "b", "ä"]
        page = file.page(start_after="a/1", limit=1)
        assert ([one.id for one in page.items], page.has_more) == (["a/2"], True)


async def test_changes_of_another_process_hold_after_changes_of_ours(tokens: TokensOf, authority: Authority) -> None:
    """SQLite's locks belong to the process: opening and closing the file beside it would drop them, and another
    process, taking the file for unused, would put it in order behind our back."""
    token = await authority.issue(AccessTokenInfo(id="ours", scope=FULL_SCOPE))
    await authority.page("", "", 10)
    command = [sys.executable, "-m", "penstock", "token", "--file", str(tokens.path)]
    issued = await trio.run_process([*command, "issue", "theirs", "--admin"], capture_stdout=True)
    assert authority.grant(issued.stdout.decode().strip()).info.id == "theirs"
    await trio.run_process([*command, "revoke", "ours"])
    assert refusal(authority, token) is FailureCode.AUTHN


def test_what_is_no_such_file(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("this is no database, and long enough to be looked at" * 20)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE t (a)")
    newer = tmp_path / "newer"
    TokenFile(newer).close()
    with closing(sqlite3.connect(newer)) as db:
        db.execute("PRAGMA user_version=99")
    for path, why in (
        (text, "not a database"),
        (other, "not a file of access tokens"),
        (newer, "version 99"),
        (tmp_path, "cannot"),
    ):
        with pytest.raises(TokenFileError, match=why):
            TokenFile(path)
