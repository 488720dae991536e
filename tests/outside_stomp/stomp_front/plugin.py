"""The plug-in: how a listener is opened, and what reports say of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.core.address import Address
from penstock.protocols.plugin import Example, ListenerKind, ProtocolPlugin
from penstock.protocols.tables import ConfigView
from stomp_front.config import StompListener

if TYPE_CHECKING:
    from penstock.protocols.opening import ListenerContext, OpenListener

__all__ = ["PLUGIN"]


class _Listener(ListenerKind[StompListener]):
    kind = "stomp"
    title = "STOMP"
    table = StompListener
    proofs = "auth_tokens, or tls_client_ca"
    at_limits = (
        ("idle_timeout_seconds", "closed", "idle_timeout_seconds"),
        ("send_timeout_seconds", "closed", "send_timeout_seconds"),
        ("max_subscriptions", "ERROR, closed", "max_subscriptions"),
    )

    def open(self, context: ListenerContext, label: str, table: StompListener) -> OpenListener:
        from stomp_front.front import open_listener

        return open_listener(context, label, table)

    def secrets(self, table: StompListener, config: ConfigView) -> str:
        return "passwords and tokens"

    def describe(self, table: StompListener, config: ConfigView) -> Iterator[str]:
        proof = "clients with a passcode" if table.auth_tokens and not table.anonymous else "any client"
        yield f"STOMP on {table.bind}, for {table.clients(proof)}"

    def commands(self, table: StompListener, address: Address, example: Example) -> Iterator[str]:
        yield from (
            "",
            "  # append a record, and follow the stream",
            f"  stomp -H {address.host} -P {address.port}  # then: subscribe /{example.stream}",
        )


PLUGIN: Final = ProtocolPlugin(listener=_Listener())
"""The front of STOMP."""
