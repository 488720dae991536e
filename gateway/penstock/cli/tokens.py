"""`penstock token`: issue, list and revoke access tokens, in their file: the gateway may run or not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from penstock.access.passwords import hash_password
from penstock.access.scopes import EVERYTHING, ops_of
from penstock.access.token_file import TokenFile, TokenFileError
from penstock.captures.text import printable
from penstock.clock import wall_clock
from penstock.config import Access, ConfigError, default_config, load_config
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.s2.access_tokens import (
    AccessTokenInfo,
    Op,
    OpGroups,
    ReadWrite,
    ResourceSet,
    Scope,
    validate_token_id,
)

__all__ = ["token_commands"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LENGTH: Final = re.compile(r"(\d{1,6})([smhdw])")
_PAGE: Final = 1000

_json_option = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")


@click.group("token")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML) of the gateway, which says where the tokens are.",
)
@click.option("--file", type=click.Path(path_type=Path), help="The file of the tokens itself.")
@click.pass_context
def token_commands(context: click.Context, config: Path | None, file: Path | None) -> None:
    """Issue, list and revoke access tokens.

    They are in a file of their own, so that the gateway need not run; where it does, a change holds from its clients'
    next request. Without options it is the file of a gateway without a configuration: ./data/access.sqlite3.
    """
    context.obj = file or _configured(config)


def _configured(config: Path | None) -> Path:
    try:
        configured = default_config() if config is None else load_config(config)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if config is not None and configured.access is None:
        raise click.ClickException(f"{config} has no [access], so the gateway would not look at any access token")
    return Path((configured.access or Access()).path(configured.store.directory))


@contextmanager
def _opened(path: Path) -> Iterator[TokenFile]:
    """The file; what is wrong with it, or with what is asked of it, is said in one line."""
    try:
        with closing(TokenFile(path)) as file:
            yield file
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error
    except OperationFailed as error:
        raise click.ClickException(error.failure.message) from error


@token_commands.command("issue")
@click.argument("token_id", metavar="ID")
@click.option("--basin", help="For this basin; without --basin and --basin-prefix: for all.")
@click.option("--basin-prefix", help="For basins whose names begin so.")
@click.option("--stream", help="For this stream; without --stream and --stream-prefix: for all.")
@click.option("--stream-prefix", help="For streams whose names begin so.")
@click.option("--auto-prefix", is_flag=True, help="Its client says the names of streams without --stream-prefix.")
@click.option("--read", is_flag=True, help="It may read, and ask for tails.")
@click.option("--append", is_flag=True, help="It may append.")
@click.option("--manage", is_flag=True, help="It may create, list, configure and delete streams and basins.")
@click.option(
    "--op", "ops", multiple=True, type=click.Choice([op.value for op in Op]), help="One operation; repeatable."
)
@click.option("--admin", is_flag=True, help="Everything, other access tokens too.")
@click.option(
    "--expires", metavar="30d", help="It ends after so many s, m, h, d or w, or at a time as 2030-01-31T12:00Z."
)
@_json_option
@click.pass_obj
def _issue(path: Path, /, token_id: str, expires: str | None, as_json: bool, **flags: Any) -> None:
    """Issue an access token. It is printed once, and kept nowhere: only its hash is."""
    now = wall_clock()
    scope = _scope(**flags)
    with _opened(path) as file:
        info = AccessTokenInfo(
            id=validate_token_id(token_id, FailureCode.INVALID),
            expires_at=None if expires is None else _expiry(expires, now),
            auto_prefix_streams=flags["auto_prefix"],
            scope=scope,
        )
        token = file.issue(info, now)
    if as_json:
        click.echo(json.dumps({**msgspec.to_builtins(info), "access_token": token}))
    else:
        click.echo(token)
        until = "until it is revoked" if info.expires_at is None else f"until {info.expires_at.isoformat()}"
        click.echo(f"access token {info.id} holds {until}; it is shown only now", err=True)


def _scope(
    *,
    basin: str | None,
    basin_prefix: str | None,
    stream: str | None,
    stream_prefix: str | None,
    auto_prefix: bool,
    read: bool,
    append: bool,
    manage: bool,
    ops: tuple[str, ...],
    admin: bool,
) -> Scope:
    if not (read or append or manage or ops or admin):
        raise click.UsageError("say what it is good for: --read, --append, --manage, --admin or --op")
    if auto_prefix and not stream_prefix:
        raise click.UsageError("--auto-prefix needs --stream-prefix")
    names = {"basins": _names("basin", basin, basin_prefix), "streams": _names("stream", stream, stream_prefix)}
    if admin:
        return msgspec.structs.replace(EVERYTHING, **names)
    both = ReadWrite(read=True, write=True) if manage else None
    groups = OpGroups(account=both, basin=both, stream=ReadWrite(read=True) if read else None)
    single = {Op(op) for op in ops} | ({Op.APPEND} if append else set())
    return Scope(**names, op_groups=groups, ops=tuple(sorted(single, key=lambda op: op.value)))


def _names(what: str, exact: str | None, prefix: str | None) -> ResourceSet:
    if exact is not None and prefix is not None:
        raise click.UsageError(f"--{what} and --{what}-prefix cannot go together")
    return ResourceSet(exact=exact) if exact is not None else ResourceSet(prefix=prefix or "")


def _expiry(text: str, now_ms: int) -> datetime:
    found = _LENGTH.fullmatch(text)
    if found is not None:
        now = datetime.fromtimestamp(now_ms // 1000, UTC)
        return now + timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        why = f"--expires: {text!r} is neither a length as 30d or 12h nor a time as 2030-01-31T12:00Z"
        raise click.UsageError(why) from None
    if moment.tzinfo is None:
        raise click.UsageError(f"--expires: {text!r} does not say in which time zone: put a Z behind it for UTC")
    return moment.astimezone(UTC)


@token_commands.command("list")
@click.option("--prefix", default="", help="Those whose ids begin so.")
@_json_option
@click.pass_obj
def _list(path: Path, /, prefix: str, as_json: bool) -> None:
    """List access tokens: what each is good for, and until when."""
    found: list[AccessTokenInfo] = []
    with _opened(path) as file:
        more = True
        while more:
            page = file.page(prefix, found[-1].id if found else "", _PAGE)
            found += page.items
            more = page.has_more
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found)))
        return
    if not found:
        click.echo("there are no access tokens" + (f" whose ids begin with {prefix}" if prefix else ""), err=True)
    for info in found:
        click.echo(printable("  ".join(_in_words(info, wall_clock()))))


def _in_words(info: AccessTokenInfo, now: int) -> Iterator[str]:
    yield info.id
    for what, names in (("basins", info.scope.basins), ("streams", info.scope.streams)):
        if names is not None:
            yield f"{what} {names.exact if names.prefix is None else names.prefix + '*'}"
    ops = ops_of(info.scope)
    yield "everything" if ops == set(Op) else ",".join(sorted(op.value for op in ops))
    if info.expires_ms is not None and info.expires_at is not None:
        yield f"{'expired' if info.expires_ms <= now else 'until'} {info.expires_at.isoformat()}"


@token_commands.command("revoke")
@click.argument("token_id", metavar="ID")
@click.pass_obj
def _revoke(path: Path, /, token_id: str) -> None:
    """Revoke an access token: its next request is refused, and its sessions end."""
    with _opened(path) as file:
        file.revoke(token_id)
    click.echo(f"access token {token_id} is revoked", err=True)


@token_commands.command("password")
@click.password_option(
    help="The password; asked for where it is not given, so that it stays out of the shell's history."
)
def _password(password: str) -> None:
    """Print the hash of a password, for the password_hash of one of the [[identities]]."""
    click.echo(hash_password(password))
