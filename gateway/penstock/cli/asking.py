"""Asking a running gateway's management listener from the command line."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.config import Address

__all__ = ["ask", "management_options", "refused"]

F = TypeVar("F", bound=Callable[..., Any])


def management_options(command: F) -> F:
    """The options by which a command finds the listener."""
    address = click.option(
        "--management",
        metavar="HOST:PORT",
        default="127.0.0.1:9100",
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
    try:
        host, port = Address.parse(management)
    except ValueError as error:
        raise click.UsageError(f"--management: {error}") from None
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection(host, port, timeout=patience)
    try:
        if words is None:
            connection.request("GET", target, headers=headers)
        else:
            connection.request("POST", target, json.dumps(words), {**headers, "content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise click.ClickException(f"no answer from {management}: {error or type(error).__name__}") from None
    except ValueError:
        raise click.ClickException(f"{management} is no management listener: its answer is not JSON") from None
    finally:
        connection.close()


def refused(answer: Any) -> click.ClickException:
    """What an error says, for people."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return click.ClickException(str(message or answer))
