"""Shared parts of the commands on streams: the name of a stream, its server, and how a command ends."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock.tools.target import LOSS_WORDS

if TYPE_CHECKING:
    from penstock.core.back import Back
    from penstock.model.operations import Start
    from penstock.tools.target.naming import Name

__all__ = ["INTERRUPTED", "on_server", "position", "server_options"]

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code of a command that a signal ended before it was done."""

_TARGET: Final = ("token", "tls_ca", "tls_certificate", "tls_key", "loss")
"""Options of `TargetOptions`."""

F = TypeVar("F", bound=Callable[..., Any])


def server_options(command: F) -> F:
    """Add the options for a server: `server`, and those of `TargetOptions`."""
    server = click.option(
        "--server",
        metavar="URL",
        envvar="PENSTOCK_SERVER",
        show_envvar=True,
        help="Server of names that are no URL, such as s2://HOST:PORT or s3p://HOST:PORT.  [default: a gateway on this "
        "machine at its usual port]",
    )
    token = click.option(
        "--token",
        metavar="TOKEN",
        envvar="PENSTOCK_TOKEN",
        show_envvar=True,
        help="Bearer token for the server, if it takes one.",
    )
    ca = _file("ca", "PEM file of authorities to trust for the server's certificate (default: the system's).")
    certificate = _file("certificate", "PEM file of a client certificate, if the server asks for one.")
    key = _file("key", "PEM file of the client certificate's private key.")
    loss = click.option(
        "--loss", type=click.Choice(LOSS_WORDS), help="Treatment of records that the server's protocol cannot carry."
    )
    return server(token(ca(certificate(key(loss(command))))))


def _file(name: str, meaning: str) -> Callable[[F], F]:
    return click.option(f"--tls-{name}", type=click.Path(dir_okay=False, exists=True), help=meaning)


def position(option: str, text: str) -> Start:
    """Return the position that an option names. Raises UsageError."""
    from penstock.app.streams.positions import BadPosition, parse_position

    try:
        return parse_position(text, time.time())
    except BadPosition as error:
        raise click.UsageError(f"{option}: {error}") from None


def on_server(text: str, said: dict[str, Any], work: Callable[[Back, Name], Awaitable[object]]) -> None:
    """Run `work` with the server of a name, until it is done or a signal ends it, which is the exit code INTERRUPTED.

    Failures end the command with a line of text and exit code 1, a wrong name with 2.
    """
    import trio

    from penstock.app.streams.formats import BadInput
    from penstock.cli.signals import until_signalled
    from penstock.core.errors import CannotStart
    from penstock.model.failures import OperationFailed
    from penstock.observe import configure_logging
    from penstock.tools.target.back import TARGET_BACK, TargetOptions, open_target_back
    from penstock.tools.target.naming import parse_name
    from penstock.tools.target.url import BadTarget

    configure_logging("error", "auto")
    try:
        name = parse_name(text, said["server"])

        async def session() -> None:
            async with open_target_back(name.server, options) as back:
                await work(back, name)

        options = TargetOptions(**{key: said[key] for key in _TARGET})
        if not trio.run(until_signalled, session):
            sys.exit(INTERRUPTED)
    except BadTarget as error:
        raise click.UsageError(str(error)) from None
    except OperationFailed as error:
        raise click.ClickException(error.failure.message.removeprefix(f"back {TARGET_BACK} at ")) from None
    except (BadInput, CannotStart) as error:
        raise click.ClickException(str(error)) from None
