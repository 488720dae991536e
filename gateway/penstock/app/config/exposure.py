"""Exposure of listeners to other machines, and the ways in which their clients authenticate."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.app.config.listeners import AnyListener, ControllerListener, S2Listener, S3PListener, SegmentListener
from penstock.app.config.management import Management
from penstock.app.config.schema import Config
from penstock.core.address import Address

__all__ = ["is_exposed", "is_private", "open_by_mistake", "proves_clients", "shows_secrets"]


def is_exposed(listener: AnyListener | Management) -> bool:
    """Return whether other machines can connect to the listener."""
    return not Address.parse(listener.bind).is_loopback


def is_private(config: Config, label: str, listener: AnyListener | Management) -> bool:
    """Return whether only this machine may reach the listener: its clients need not authenticate, and it is not marked
    `anonymous`. `label`: its name in routes, or `management`."""
    if isinstance(listener, Management):
        return not (listener.anonymous or listener.auth_tokens or listener.proves_clients)
    return not (listener.anonymous or any(_proofs(config, label, listener)))


def proves_clients(config: Config, label: str, listener: AnyListener) -> bool:
    """Return whether all clients of the listener must authenticate. `label`: its name in routes."""
    return not listener.anonymous and any(_proofs(config, label, listener))


def shows_secrets(config: Config, listener: AnyListener) -> bool:
    """Return whether the listener's clients send tokens or passwords."""
    if isinstance(listener, S2Listener):
        return bool(listener.auth_tokens) or config.access is not None
    if isinstance(listener, ControllerListener):
        return config.listeners.segment_of(listener).delegation_tokens
    return isinstance(listener, SegmentListener) and listener.delegation_tokens


def open_by_mistake(config: Config) -> Iterator[str]:
    """Yield what to do about each listener that other machines reach without authentication and that is not marked
    `anonymous`."""
    for label, listener in config.listeners.labelled():
        if is_exposed(listener) and is_private(config, label, listener):
            yield (
                f"listeners.{label}: other machines reach {listener.bind}, and its clients need not prove who they "
                f"are. Give {_ways(listener)}; or say that everybody may use it: anonymous = true (--anonymous)"
            )
    management = config.management
    if management.enabled and is_exposed(management) and is_private(config, "management", management):
        yield (
            f"management: other machines reach {management.bind}, and its clients need not prove who they are. "
            f"Give {_ways(management)}; or say that everybody may use it: anonymous = true"
        )


def _proofs(config: Config, label: str, listener: AnyListener) -> Iterator[bool]:
    """Yield for each way of authenticating all clients whether this listener has it."""
    yield listener.proves_clients
    yield shows_secrets(config, listener)
    if isinstance(listener, S2Listener | S3PListener):
        kind = label.partition(".")[0]
        routes = [route for route in config.routes if not route.listeners or {label, kind} & set(route.listeners)]
        yield bool(routes) and all(route.identity for route in routes)


def _ways(listener: AnyListener | Management) -> str:
    """Return the keys that would make the listener authenticate its clients."""
    if isinstance(listener, S2Listener):
        return "[access] or auth_tokens, or tls_client_ca"
    if isinstance(listener, S3PListener):
        return "tls_client_ca, or routes that are all for identities"
    if isinstance(listener, Management):
        return "auth_tokens or tls_client_ca"
    return "delegation_tokens of [listeners.segment], or tls_client_ca"
