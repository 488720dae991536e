"""TLS over memory streams: a listener's handshakes on one side, a client of Python's `ssl` on the other."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

import trio
import trio.testing
from support.tls.authority import Authority, Issued

from penstock.core.identity import CLIENT, Identities
from penstock.net.tls import ServerTls, tls_stream
from penstock.net.tls.handshakes import Handshakes, HandshakeSettings

__all__ = ["Greeted", "client_context", "greet"]


def client_context(authority: Authority, shown: Issued | None = None, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """Return the context of a client that trusts the authority, and shows a certificate if it has one."""
    context = ssl.create_default_context(cafile=authority.ca)
    if shown is not None:
        context.load_cert_chain(*shown.pair)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@dataclass
class Greeted:
    """Result of a handshake.

    `served`: identities of the clients that reached the front. `error`: the client's error, in OpenSSL's words.
    `shown`: the common name of the server's certificate. `alpn`: the protocol agreed on.
    """

    served: list[str] = field(default_factory=list)
    error: str | None = None
    shown: str | None = None
    alpn: str | None = None
    version: str | None = None


async def greet(
    tls: ServerTls,
    context: ssl.SSLContext,
    *,
    name: str | None = "server.example",
    identities: Identities | None = None,
    seconds: float = 10.0,
) -> Greeted:
    """Connect: a handshake, then one byte each way."""
    found = Greeted()
    settings = HandshakeSettings(seconds) if identities is None else HandshakeSettings(seconds, identities)

    async def front(stream: trio.abc.Stream) -> None:
        found.served.append(CLIENT.get().identity)
        await stream.send_all(await stream.receive_some(1))
        await stream.aclose()

    nothing: Callable[[], None] = lambda: None  # noqa: E731
    handshakes = Handshakes("listeners.test", settings, front, nothing)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handshakes.serve, tls_stream(theirs, tls.context))
        client = trio.SSLStream(ours, context, server_hostname=name, https_compatible=True)
        try:
            await client.do_handshake()
            found.alpn, found.version = client.selected_alpn_protocol(), client.version()
            found.shown = dict(part for (part,) in client.getpeercert()["subject"])["commonName"]
            await client.send_all(b"x")
            if await client.receive_some(1) != b"x":
                found.error = "the end"
        except trio.BrokenResourceError as error:
            found.error = str(getattr(error.__cause__, "reason", None) or error.__cause__)
            with contextlib.suppress(trio.BrokenResourceError):  # the alert, which trio keeps for itself
                await ours.send_all(client._outgoing.read())
        finally:
            await trio.aclose_forcefully(client)
    return found
