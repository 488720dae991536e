"""Requests to a running gateway's management listener."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from penstock.core.errors import CannotStart

__all__ = ["answer_error", "answered", "ask", "follow", "management_options"]

F = TypeVar("F", bound=Callable[..., Any])

_PIECE: Final = 64 * 1024
_HTTPS: Final = "https://"
_HTTP: Final = "http://"
_META: Final = "penstock.management."


def management_options(command: F) -> F:
    """Add the options that locate the management listener and authenticate to it."""
    address = click.option(
        "--management",
        metavar="HOST:PORT",
        default="127.0.0.1:9600",
        show_default=True,
        envvar="PENSTOCK_MANAGEMENT",
        show_envvar=True,
        help="The gateway's management listener, also as http://HOST:PORT; https://HOST:PORT if it has TLS.",
    )
    token = click.option(
        "--token",
        envvar="PENSTOCK_MANAGEMENT_TOKEN",
        show_envvar=True,
        help="Bearer token, if the listener requires one.",
    )
    ca = _file("ca", "PEM file of authorities to trust for its certificate (default: the system's).")
    certificate = _file("certificate", "PEM file of a client certificate, if the listener asks for one.")
    key = _file("key", "PEM file of the client certificate's private key.")
    return address(token(ca(certificate(key(command)))))


def _file(name: str, meaning: str) -> Callable[[F], F]:
    """Return an option whose value `_tls` finds in the command's context."""

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
    management: str,
    token: str | None,
    target: str,
    words: object = None,
    *,
    method: str = "POST",
    patience: float = 30.0,
) -> tuple[int, Any]:
    """Return status and JSON of the answer to GET `target`, or to `method` with `words` as the JSON body. Waits at most
    `patience` seconds.

    Raises ClickException if there is no JSON answer.
    """
    connection, headers = _connection(management, token, patience)
    try:
        if words is None:
            connection.request("GET", target, headers=headers)
        else:
            connection.request(method, target, json.dumps(words), {**headers, "content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise _no_answer(management, error) from None
    except ValueError:
        raise _no_json(management) from None
    finally:
        connection.close()


def answered(
    management: str, token: str | None, target: str, words: object = None, *, method: str = "POST", status: int = 200
) -> Any:
    """Return the JSON of an answer, as `ask`. Raises ClickException with the message of one with another status."""
    got, answer = ask(management, token, target, words, method=method)
    if got != status:
        raise answer_error(answer)
    return answer


def follow(
    management: str,
    token: str | None,
    target: str,
    *,
    patience: float = 30.0,
    until: Callable[[], object] | None = None,
) -> Iterator[bytes]:
    """Yield the body of the answer to GET `target` as it arrives, without a time limit; `patience` (seconds) bounds
    only the wait for its head. `until`: blocks until the body is no longer wanted, which ends the iteration even if
    nothing arrives; it is called in a thread.

    Raises ClickException if the request is refused, or the answer is cut off.
    """
    connection, headers = _connection(management, token, patience)
    unwanted = threading.Event()
    try:
        connection.request("GET", target, headers=headers)
        sock = connection.sock  # the answer takes the socket over
        answer = connection.getresponse()
        if answer.status != 200:
            raise answer_error(json.loads(answer.read()))
        sock.settimeout(None)
        if until is not None:
            threading.Thread(target=_cut, args=(sock, until, unwanted), daemon=True).start()
        while (piece := answer.read1(_PIECE)) and not unwanted.is_set():
            yield piece
    except (OSError, http.client.HTTPException) as error:
        if not unwanted.is_set():
            raise _no_answer(management, error) from None
    except ValueError:
        raise _no_json(management) from None
    finally:
        connection.close()


def _cut(sock: socket.socket, until: Callable[[], object], unwanted: threading.Event) -> None:
    """Cut the connection as soon as `until` returns, so that a thread that reads from it goes on."""
    until()
    unwanted.set()
    with contextlib.suppress(OSError):  # it was closed meanwhile
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # SSLSocket's own method is not for other threads


def _connection(
    management: str, token: str | None, patience: float
) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    from penstock.core.address import Address

    try:
        host, port = Address.parse(management.removeprefix(_HTTPS).removeprefix(_HTTP).removesuffix("/"))
    except ValueError as error:
        raise click.UsageError(f"--management: {error}") from None
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    if management.startswith(_HTTPS):
        return http.client.HTTPSConnection(host, port, timeout=patience, context=_tls()), headers
    return http.client.HTTPConnection(host, port, timeout=patience), headers


def _tls() -> ssl.SSLContext:
    from penstock.net.tls import ClientTls

    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    ca, certificate, key = (meta.get(_META + name) for name in ("ca", "certificate", "key"))
    try:
        return ClientTls(ca, certificate, key).context
    except CannotStart as error:
        raise click.ClickException(str(error)) from error


def _no_answer(management: str, error: Exception) -> click.ClickException:
    reason = isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror
    hint = (
        ". Is the gateway running, with its management listener at this address?"
        if isinstance(error, ConnectionRefusedError)
        else ""
    )
    return click.ClickException(f"no answer from {management}: {reason or error or type(error).__name__}{hint}")


def _no_json(management: str) -> click.ClickException:
    return click.ClickException(f"{management} is not a management listener: its answer is not JSON")


def answer_error(answer: Any) -> click.ClickException:
    """Return an error answer's message as an exception."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return click.ClickException(str(message or answer))
