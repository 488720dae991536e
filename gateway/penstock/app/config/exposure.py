"""Exposure of listeners to other machines, and the ways in which their clients authenticate."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.app.config.listeners import listener_kind_of
from penstock.app.config.management import Management
from penstock.app.config.schema import Config, view_of
from penstock.core.address import Address
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.tables import ListenerTable

__all__ = ["is_exposed", "is_private", "open_by_mistake", "proves_clients", "secrets_shown"]


def is_exposed(listener: ListenerTable | Management) -> bool:
    """Return whether other machines can connect to the listener."""
    return not Address.parse(listener.bind).is_loopback


def is_private(config: Config, label: str, listener: ListenerTable | Management) -> bool:
    """Return whether only this machine may reach the listener: its clients need not authenticate, and it is not marked
    `anonymous`. `label`: its name in routes, or `management`."""
    if isinstance(listener, Management):
        return not (listener.anonymous or listener.bearer_tokens or listener.proves_clients)
    return not (listener.anonymous or any(_proofs(config, label, listener)))


def proves_clients(config: Config, label: str, listener: ListenerTable) -> bool:
    """Return whether all clients of the listener must authenticate. `label`: its name in routes."""
    return not listener.anonymous and any(_proofs(config, label, listener))


def secrets_shown(config: Config, label: str, listener: ListenerTable) -> str:
    """Return the secrets that the listener's clients send, in words; "" if they send none."""
    return listener_kinds()[listener_kind_of(label)].secrets(listener, view_of(config))


def open_by_mistake(config: Config) -> Iterator[str]:
    """Yield what to do about each listener that other machines reach without authentication and that is not marked
    `anonymous`."""
    for label, listener in config.listeners.labelled():
        kind = listener_kinds()[listener_kind_of(label)]
        if is_exposed(listener) and is_private(config, label, listener):
            yield (
                f"listeners.{label}: other machines reach {listener.bind}, and its clients need not authenticate. "
                f"Give {kind.proofs}; or open it to all clients: anonymous = true (--anonymous)"
            )
    management = config.management
    if management.enabled and is_exposed(management) and is_private(config, "management", management):
        yield (
            f"management: other machines reach {management.bind}, and its clients need not authenticate. "
            f"Give auth_tokens or tls_client_ca; or open it to all clients: anonymous = true"
        )


def _proofs(config: Config, label: str, listener: ListenerTable) -> Iterator[bool]:
    """Yield for each way of authenticating all clients whether this listener has it."""
    yield listener.proves_clients
    yield bool(secrets_shown(config, label, listener))
    yield listener_kinds()[listener_kind_of(label)].proved_by_routes and label in view_of(config).identified
