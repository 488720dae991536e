"""Texts about S2 listeners and backs for people: reports, plans of losses, and the first commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from penstock.core.address import Address
from penstock.model.operations import Capability
from penstock.protocols.plugin import Example
from penstock.protocols.tables import ConfigView
from penstock.routing.loss.plan import BackSide, Fate, FrontSide, Item, bodies, carried
from penstock_s2.config import S2Listener

__all__ = ["CREDENTIALS", "S2Side", "commands", "describe", "served"]

CREDENTIALS: Final = {
    "none": "no credentials",
    "static": "one token for all",
    "pass": "each client's own token",
    "swap": "a token for each identity",
}
_JSON: Final = "-H 'content-type: application/json'"


class S2Side(FrontSide):
    """Clients of S2, which can express all parts of a record."""

    def __init__(self) -> None:
        super().__init__(passes="S2S")

    def appends(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of each feature of records that its clients append."""
        yield from bodies(back, "bodies")
        yield from carried(back)
        if Capability.TIMESTAMPS in back.capabilities:
            yield Item("clients' timestamps", Fate.KEPT, back.timestamps_kept)
        else:
            yield Item("clients' timestamps", Fate.DROPPED, "the server stamps records")
        for name, capability in (("match_seq_num", Capability.MATCH_SEQ_NUM), ("fencing_token", Capability.FENCING)):
            fate = Fate.KEPT if capability in back.capabilities else Fate.REFUSED
            yield Item(name, fate, "" if fate is Fate.KEPT else "the server has no such condition")

    def positions(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of positions and timestamps that its clients read."""
        yield Item("sequence numbers", Fate.KEPT, "counted by the gateway, kept in its index" if back.numbered else "")
        yield Item("timestamps", Fate.KEPT, back.timestamps_read)


def served(listener: S2Listener, config: ConfigView) -> str:
    """Return which clients a listener serves."""
    count = len(listener.auth_tokens)
    tokens = [f"one of {count} bearer tokens"] if count else []
    if config.access_tokens is not None:
        tokens.append("an access token")
    if not tokens:
        return "any client, without a token"
    those = f"clients with {' or '.join(tokens)}"
    return f"any client without a token, and {those}" if listener.anonymous else those


def describe(listener: S2Listener, config: ConfigView) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe`."""
    carrier = "HTTPS" if listener.tls_certificate else "HTTP"
    yield f"S2 by {carrier} (S2S, SSE, JSON, protobuf; HTTP/1.1 and HTTP/2) on {listener.bind}"
    yield f"S2 clients: {listener.clients(served(listener, config))}"
    unnamed = f"sent to basin {listener.default_basin}" if listener.default_basin else "refused"
    yield f"S2 requests without a basin: {unnamed}"
    pages = "any origin" if "*" in listener.cors_origins else ", ".join(listener.cors_origins) or "its own origin only"
    yield f"S2 in browsers: pages of {pages}"
    if listener.sse_dialect != "s2":
        yield f"SSE uses the dialect {listener.sse_dialect!r}, which S2's own clients cannot read"


def commands(listener: S2Listener, address: Address, example: Example) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.commands`."""
    url = f"{'https' if listener.tls_certificate else 'http'}://{address}/v1"
    curl = f"curl --cacert {shlex.quote(listener.tls_certificate)}" if listener.tls_certificate else "curl"
    if listener.proves_clients:
        curl += " --cert client.pem --key client-key.pem"
        yield from (
            "",
            f"  # client.pem, client-key.pem: a certificate from an authority in {listener.tls_client_ca}",
        )
    in_basin = f"-H 's2-basin: {example.basin}'"
    if listener.auth_tokens:
        in_basin += ' -H "authorization: Bearer $TOKEN"'
        yield from ("", "  # TOKEN is one of the listener's auth_tokens")
    bodies_of = {
        "basin": f'{{"basin":"{example.basin}","config":{{"create_stream_on_append":true}}}}',
        "stream": f'{{"stream":"{example.stream}"}}',
    }
    if example.creation:
        created, body = example.creation, bodies_of[example.creation]
        yield from (
            "",
            f"  # create a {created}, unless it exists",
            f"  {curl} {url}/{created}s {in_basin} {_JSON} -d '{body}'",
        )
    records = f"{url}/streams/{example.stream}/records"
    yield from (
        "",
        "  # append two records (S2, JSON)",
        f"  {curl} {records} {in_basin} {_JSON} \\",
        """    -d '{"records":[{"body":"first"},{"body":"second"}]}'""",
        "",
        "  # follow the stream (S2, SSE); Ctrl-C ends it",
        f"  {curl} -N '{records}?seq_num=0' {in_basin} -H 'accept: text/event-stream'",
    )
