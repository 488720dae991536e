"""`penstock token`: issue, list and revoke access tokens in their file, whether or not the gateway runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from penstock.cli.output import json_lines_option, json_option, print_json
from penstock.core.scopes import FULL_SCOPE, ops_of
from penstock.model.access_tokens import (
    AccessTokenInfo,
    Op,
    OpGroups,
    ReadWrite,
    ResourceSet,
    Scope,
    utc_time,
    validate_token_id,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock.recorder.captures.text import printable
from penstock.routing.access.token_file import TokenFile, TokenFileError

__all__ = ["token_commands"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LENGTH: Final = re.compile(r"(\d{1,6})([smhdw])")
_PAGE: Final = 1000


@click.group("token")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML) of the gateway, which names the token file.",
)
@click.option("--file", type=click.Path(path_type=Path), help="The token file.")
@click.pass_context
def token_commands(context: click.Context, config: Path | None, file: Path | None) -> None:
    """Issue, list and revoke access tokens.

    Tokens are in a file of their own, so the gateway need not run; if it does, a change applies from its clients' next
    request. The default is the file of a gateway without a configuration: ./data/access.sqlite3.
    """
    context.obj = _TokenFile(config, file)


class _TokenFile(NamedTuple):
    """The token file, or the configuration that names it."""

    config: Path | None
    file: Path | None


def _configured(config: Path | None) -> Path:
    from penstock.app.config import Access, ConfigError, default_config, load_config, tokens_in_state

    try:
        configured = default_config() if config is None else load_config(config)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if config is not None and configured.access is None:
        raise click.ClickException(f"{config} has no [access], so the gateway ignores access tokens")
    if (back := tokens_in_state(configured)) is not None:
        raise click.ClickException(
            f"the access tokens of {config} are in the gateway's state, which back {back} keeps: issue, list and revoke"
            " them with /v1/access-tokens of a running gateway, at first with one of its listener's auth_tokens"
        )
    return Path((configured.access or Access()).path(configured.store.directory))


@contextmanager
def _opened(place: _TokenFile, *, make: bool = False) -> Iterator[TokenFile]:
    """Open the token file; report errors with it, or with the request, in one line. `make`: create a missing file,
    with a note on standard error."""
    path = place.file or _configured(place.config)
    is_new = not path.exists()
    if is_new and not make:
        raise click.ClickException(f"there are no access tokens: {path} does not exist")
    try:
        with closing(TokenFile(path)) as file:
            if is_new:
                click.echo(f"created {path}, a new file of access tokens", err=True)
            yield file
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error
    except OperationFailed as error:
        raise click.ClickException(error.failure.message) from error


@token_commands.command("issue")
@click.argument("token_id", metavar="ID")
@click.option("--basin", help="Only for this basin (default: all).")
@click.option("--basin-prefix", help="Only for basins with this prefix.")
@click.option("--stream", help="Only for this stream (default: all).")
@click.option("--stream-prefix", help="Only for streams with this prefix.")
@click.option("--group", help="Only this consumer group (default: those of its streams).")
@click.option("--group-prefix", help="Only consumer groups with this prefix.")
@click.option("--transactional-id", help="Only this transactional id (default: those of its streams).")
@click.option("--transactional-id-prefix", help="Only transactional ids with this prefix.")
@click.option("--auto-prefix", is_flag=True, help="Add --stream-prefix to the stream names that its client uses.")
@click.option("--read", is_flag=True, help="Allow reads and checks of the tail.")
@click.option("--append", is_flag=True, help="Allow appends.")
@click.option(
    "--manage",
    is_flag=True,
    help="Allow creating, listing, configuring and deleting streams, and basins if the token covers all their streams.",
)
@click.option(
    "--op", "ops", multiple=True, type=click.Choice([op.value for op in Op]), help="Allow one operation; repeatable."
)
@click.option("--admin", is_flag=True, help="Allow everything, including access tokens.")
@click.option(
    "--expires", metavar="30d", help="Lifetime in s, m, h, d or w, or time of expiry such as 2030-01-31T12:00Z."
)
@json_option
@click.pass_obj
def _issue(place: _TokenFile, /, token_id: str, expires: str | None, as_json: bool, **flags: Any) -> None:
    """Issue an access token. It is printed once; only its hash is kept."""
    from penstock.core.clock import wall_clock

    now = wall_clock()
    scope = _scope(**flags)
    with _opened(place, make=True) as file:
        info = AccessTokenInfo(
            id=validate_token_id(token_id, FailureCode.INVALID),
            expires_at=None if expires is None else _expiry(expires, now),
            auto_prefix_streams=flags["auto_prefix"],
            scope=scope,
        )
        token = file.issue(info, now)
    if as_json:
        print_json({**msgspec.to_builtins(info), "access_token": token})
    else:
        click.echo(token)
        until = "until it is revoked" if info.expires_at is None else f"until {info.expires_at}"
        click.echo(f"access token {info.id} is valid {until}; it is not shown again", err=True)


def _scope(
    *,
    basin: str | None,
    basin_prefix: str | None,
    stream: str | None,
    stream_prefix: str | None,
    group: str | None,
    group_prefix: str | None,
    transactional_id: str | None,
    transactional_id_prefix: str | None,
    auto_prefix: bool,
    read: bool,
    append: bool,
    manage: bool,
    ops: tuple[str, ...],
    admin: bool,
) -> Scope:
    if not (read or append or manage or ops or admin):
        raise click.UsageError("give at least one of --read, --append, --manage, --admin and --op")
    if auto_prefix and not stream_prefix:
        raise click.UsageError("--auto-prefix needs --stream-prefix")
    every = ResourceSet(prefix="")
    named = Scope(
        basins=_names("basin", basin, basin_prefix) or every,
        streams=_names("stream", stream, stream_prefix) or every,
        groups=_names("group", group, group_prefix),
        transactional_ids=_names("transactional-id", transactional_id, transactional_id_prefix),
    )
    if admin:
        return msgspec.structs.replace(
            named, access_tokens=FULL_SCOPE.access_tokens, op_groups=FULL_SCOPE.op_groups, ops=FULL_SCOPE.ops
        )
    both = ReadWrite(read=True, write=True) if manage else None
    groups = OpGroups(account=both, basin=both, stream=ReadWrite(read=True) if read else None)
    single = {Op(op) for op in ops} | ({Op.APPEND} if append else set())
    scope = msgspec.structs.replace(named, ops=tuple(sorted(single, key=lambda op: op.value)))
    for op in sorted(single - ops_of(scope), key=lambda op: op.value):
        raise click.UsageError(f"--op {op.value} applies to all streams of a basin, not to some")
    return msgspec.structs.replace(scope, op_groups=groups)


def _names(what: str, exact: str | None, prefix: str | None) -> ResourceSet | None:
    if exact is not None and prefix is not None:
        raise click.UsageError(f"--{what} and --{what}-prefix cannot be combined")
    return None if exact is None and prefix is None else ResourceSet(exact=exact, prefix=prefix)


def _expiry(text: str, now_ms: int) -> str:
    try:
        return utc_time(_moment(text, now_ms).isoformat())
    except OverflowError:
        raise click.UsageError(f"--expires: {text!r} is outside the years 1 to 9999 of UTC") from None


def _moment(text: str, now_ms: int) -> datetime:
    """Return the time that a lifetime or a time names. Raises OverflowError for one that cannot be expressed."""
    match = _LENGTH.fullmatch(text)
    if match is not None:
        now = datetime.fromtimestamp(now_ms // 1000, UTC)
        return now + timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        reason = f"--expires: {text!r} is neither a lifetime such as 30d or 12h nor a time such as 2030-01-31T12:00Z"
        raise click.UsageError(reason) from None
    if moment.tzinfo is None:
        raise click.UsageError(f"--expires: {text!r} has no time zone: add Z for UTC")
    return moment.astimezone(UTC)


@token_commands.command("list")
@click.option("--prefix", default="", help="Only tokens whose ids have this prefix.")
@json_lines_option("token")
@click.pass_obj
def _list(place: _TokenFile, /, prefix: str, as_lines: bool) -> None:
    """List access tokens with their permissions and expiry."""
    tokens: list[AccessTokenInfo] = []
    with _opened(place) as file:
        more = True
        while more:
            page = file.page(prefix, tokens[-1].id if tokens else "", _PAGE)
            tokens += page.items
            more = page.has_more
    if as_lines:
        print_json(*msgspec.to_builtins(tokens))
        return
    from penstock.core.clock import wall_clock

    if not tokens:
        click.echo("there are no access tokens" + (f" whose ids begin with {prefix}" if prefix else ""), err=True)
    for info in tokens:
        click.echo(printable("  ".join(_in_words(info, wall_clock()))))


def _in_words(info: AccessTokenInfo, now: int) -> Iterator[str]:
    yield info.id
    for kind in ("basins", "streams", "groups", "transactional_ids"):
        names: ResourceSet | None = getattr(info.scope, kind)
        if names is not None:
            yield f"{kind.replace('_', ' ')} {names.exact if names.prefix is None else names.prefix + '*'}"
    ops = ops_of(info.scope)
    yield "everything" if ops == set(Op) else ",".join(sorted(op.value for op in ops))
    if info.expires_ms is not None:
        yield f"{'expired' if info.expires_ms <= now else 'until'} {info.expires_at}"


@token_commands.command("revoke")
@click.argument("token_id", metavar="ID")
@click.pass_obj
def _revoke(place: _TokenFile, /, token_id: str) -> None:
    """Revoke an access token: its next request is refused, and its sessions end."""
    with _opened(place) as file:
        file.revoke(token_id)
    click.echo(f"access token {token_id} is revoked", err=True)


@token_commands.command("password")
@click.password_option(help="The password; prompted for if omitted, so that it stays out of the shell's history.")
def _password(password: str) -> None:
    """Print the hash of a password, for the password_hash of one of the [[identities]]."""
    from penstock.routing.access.passwords import hash_password

    click.echo(hash_password(password))
