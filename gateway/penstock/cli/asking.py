"""Asking a running gateway's management listener from the command line."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from penstock.config import Address
from penstock.errors import CannotStart
from penstock.tls import ClientTls

__all__ = ["ask", "follow", "management_options", "refused"]

F = TypeVar("F", bound=Callable[..., Any])

_PIECE: Final = 64 * 1024
_HTTPS: Final = "https://"
_META: Final = "penstock.management."


def management_options(command: F) -> F:
    """The options by which a command finds the listener."""
    address = click.option(
        "--management",
        metavar="HOST:PORT",
        default="127.0.0.1:9600",
        show_default=True,
        envvar="PENSTOCK_MANAGEMENT",
        show_envvar=True,
        help="The gateway's management listener; https://HOST:PORT where it has TLS.",
    )
    token = click.option(
        "--token",
        envvar="PENSTOCK_MANAGEMENT_TOKEN",
        show_envvar=True,
        help="A bearer token, where the listener wants one.",
    )
    ca = _file("ca", "PEM file of the authorities that its certificate is trusted by; else the system's.")
    certificate = _file("certificate", "PEM file of a certificate to show, where the listener asks for one.")
    key = _file("key", "PEM file of that certificate's key.")
    return address(token(ca(certificate(key(command)))))


def _file(name: str, meaning: str) -> Callable[[F], F]:
    """An option that `_tls` finds in the context of the command."""

    def keep(context: click.Context, _option: click.Parameter, path: str | None) -> None:
        context.meta[_META + name] = path

    return click.option(
        f"--management-{name}",
        type=click.Path(dir_okay=False, exists=True),
        envvar=f"PENSTOCK_MANAGEMENT_{name.upper()}",
        show_envvar=True,
        expose_value=False,
        callback=keep,
        help=meaning,
    )


def ask(
    management: str, token: str | None, target: str, words: object = None, *, patience: float = 30.0
) -> tuple[int, Any]:
    """Status and JSON of the answer to GET `target`, or to POST with these words. Waits `patience` seconds.

    Raises ClickException where there is no such answer.
    """
    connection, headers = _connection(management, token, patience)
    try:
        if words is None:
            connection.request("GET", target, headers=headers)
        else:
            connection.request("POST", target, json.dumps(words), {**headers, "content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise _no_answer(management, error) from None
    except ValueError:
        raise _no_json(management) from None
    finally:
        connection.close()


def follow(management: str, token: str | None, target: str, *, patience: float = 30.0) -> Iterator[bytes]:
    """The answer to GET `target` in pieces, as they come, however long that takes; `patience` is for its beginning.

    Raises ClickException where it is refused, or ends before its end.
    """
    connection, headers = _connection(management, token, patience)
    try:
        connection.request("GET", target, headers=headers)
        sock = connection.sock  # which the answer takes over
        answer = connection.getresponse()
        if answer.status != 200:
            raise refused(json.loads(answer.read()))
        sock.settimeout(None)
        while piece := answer.read1(_PIECE):
            yield piece
    except (OSError, http.client.HTTPException) as error:
        raise _no_answer(management, error) from None
    except ValueError:
        raise _no_json(management) from None
    finally:
        connection.close()


def _connection(
    management: str, token: str | None, patience: float
) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    try:
        host, port = Address.parse(management.removeprefix(_HTTPS))
    except ValueError as error:
        raise click.UsageError(f"--management: {error}") from None
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    if management.startswith(_HTTPS):
        return http.client.HTTPSConnection(host, port, timeout=patience, context=_tls()), headers
    return http.client.HTTPConnection(host, port, timeout=patience), headers


def _tls() -> ssl.SSLContext:
    context = click.get_current_context(silent=True)
    said = {} if context is None else context.meta
    ca, certificate, key = (said.get(_META + name) for name in ("ca", "certificate", "key"))
    try:
        return ClientTls(ca, certificate, key).context
    except CannotStart as error:
        raise click.ClickException(str(error)) from error


def _no_answer(management: str, error: Exception) -> click.ClickException:
    why = isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror
    hint = (
        ". Does the gateway run, with its management listener there?"
        if isinstance(error, ConnectionRefusedError)
        else ""
    )
    return click.ClickException(f"no answer from {management}: {why or error or type(error).__name__}{hint}")


def _no_json(management: str) -> click.ClickException:
    return click.ClickException(f"{management} is no management listener: its answer is not JSON")


def refused(answer: Any) -> click.ClickException:
    """What an error says, for people."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return click.ClickException(str(message or answer))
