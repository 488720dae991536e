"""Which listeners other machines reach, and whether those that ask there have to prove who they are."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config.address import Address
from penstock.config.listeners import AnyListener, ControllerListener, S2Listener, S3PListener, SegmentListener
from penstock.config.management import Management
from penstock.config.schema import Config

__all__ = ["is_exposed", "is_private", "open_by_mistake", "proves_clients", "shows_secrets"]


def is_exposed(listener: AnyListener | Management) -> bool:
    """Whether others than this machine can connect."""
    return not Address.parse(listener.bind).is_loopback


def is_private(config: Config, label: str, listener: AnyListener | Management) -> bool:
    """Whether it must not be reached by others than this machine: its clients need not prove who they are, and it does
    not say that this is meant. `label`: what routes call it, or `management`."""
    if isinstance(listener, Management):
        return not (listener.anonymous or listener.auth_tokens or listener.proves_clients)
    return not (listener.anonymous or any(_proofs(config, label, listener)))


def proves_clients(config: Config, label: str, listener: AnyListener) -> bool:
    """Whether all its clients have to prove who they are; `label`: what routes call the listener."""
    return not listener.anonymous and any(_proofs(config, label, listener))


def shows_secrets(config: Config, listener: AnyListener) -> bool:
    """Whether its clients send tokens or passwords."""
    if isinstance(listener, S2Listener):
        return bool(listener.auth_tokens) or config.access is not None
    if isinstance(listener, ControllerListener):
        return config.listeners.segment_of(listener).delegation_tokens
    return isinstance(listener, SegmentListener) and listener.delegation_tokens


def open_by_mistake(config: Config) -> Iterator[str]:
    """For each listener that others than this machine reach, that serves whoever reaches it, and that does not say
    that this is meant: what to do about it."""
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
    """Ways in which all clients prove who they are, and whether this listener has them."""
    yield listener.proves_clients
    yield shows_secrets(config, listener)
    if isinstance(listener, S2Listener | S3PListener):
        kind = label.partition(".")[0]
        routes = [route for route in config.routes if not route.listeners or {label, kind} & set(route.listeners)]
        yield bool(routes) and all(route.identity for route in routes)


def _ways(listener: AnyListener | Management) -> str:
    """The keys by which it would have them."""
    if isinstance(listener, S2Listener):
        return "[access] or auth_tokens, or tls_client_ca"
    if isinstance(listener, S3PListener):
        return "tls_client_ca, or routes that are all for identities"
    if isinstance(listener, Management):
        return "auth_tokens or tls_client_ca"
    return "delegation_tokens of [listeners.segment], or tls_client_ca"
