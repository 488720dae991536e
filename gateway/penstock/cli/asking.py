"""Asking a running gateway's management listener from the command line."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from penstock.config import Address

__all__ = ["ask", "follow", "management_options", "refused"]

F = TypeVar("F", bound=Callable[..., Any])

_PIECE: Final = 64 * 1024


def management_options(command: F) -> F:
    """The options by which a command finds the listener."""
    address = click.option(
        "--management",
        metavar="HOST:PORT",
        default="127.0.0.1:9600",
        show_default=True,
        help="The gateway's management listener.",
    )
    token = click.option(
        "--token", envvar="PENSTOCK_MANAGEMENT_TOKEN", help="A bearer token, where the listener wants one."
    )
    return address(token(command))


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
        host, port = Address.parse(management)
    except ValueError as error:
        raise click.UsageError(f"--management: {error}") from None
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return http.client.HTTPConnection(host, port, timeout=patience), headers


def _no_answer(management: str, error: Exception) -> click.ClickException:
    return click.ClickException(f"no answer from {management}: {error or type(error).__name__}")


def _no_json(management: str) -> click.ClickException:
    return click.ClickException(f"{management} is no management listener: its answer is not JSON")


def refused(answer: Any) -> click.ClickException:
    """What an error says, for people."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return click.ClickException(str(message or answer))
