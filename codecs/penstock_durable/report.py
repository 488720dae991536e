"""Texts about listeners and backs of Durable Streams for people: reports, plans of losses, and the first commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from penstock.core.address import Address
from penstock.model.features import Feature
from penstock.model.limits import MIB
from penstock.model.operations import Capability
from penstock.model.records import StreamRef
from penstock.protocols.plugin import Example
from penstock.protocols.tables import ConfigView
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.routing.loss.plan import BackSide, Fate, FrontSide, Item
from penstock_durable.codec import OVERHEAD_BYTES
from penstock_durable.config import DurableBackTable, DurableListener
from penstock_durable.names import names_of

__all__ = ["DurableSide", "back_side", "commands", "describe", "describe_names"]


class DurableSide(FrontSide):
    """Clients of Durable Streams, whose records are bodies at offsets."""

    def positions(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of positions that its clients read."""
        yield Item("offsets", Fate.KEPT, "counted by the gateway, kept in its index" if back.numbered else "")


def back_side(table: DurableBackTable) -> BackSide:
    """See `penstock.protocols.plugin.BackKind.side`."""
    from penstock_durable.back import CAPABILITIES  # the first commands are shown without it

    where = "on streams of records; refused on streams of JSON"
    kept = {} if table.create_as == "json" else {Feature.HEADERS: where, Feature.EMPTY_BODY: where}
    capabilities = CAPABILITIES | {Capability.TRIM, Capability.LOCATE, Capability.RECORD_IDS}
    capabilities |= {Capability.TIMESTAMPS, Capability.BYTES}
    if table.loss.headers == "drop":
        capabilities -= {Capability.HEADERS}
        kept.pop(Feature.HEADERS, None)
    return BackSide(
        kind="durable",
        capabilities=capabilities,
        delivery=table.delivery,
        loss=LossPolicy(headers=Loss(table.loss.headers), empty_body=Loss.REFUSE, command_records=Loss.REFUSE),
        kept=kept,
        largest=min(table.max_append_bytes - OVERHEAD_BYTES, 1 * MIB - 8),
        numbered=True,
        timestamps_kept="in the gateway's index",
        timestamps_read="the gateway's, kept in its index",
        finds_out="the gateway sends it again with its number as a producer, and the server stores it once",
    )


def describe(listener: DurableListener, config: ConfigView) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe`."""
    carrier = "HTTPS" if listener.tls_certificate else "HTTP"
    count = len(listener.auth_tokens)
    tokens = [f"one of {count} bearer tokens"] if count else []
    if config.access_tokens is not None:
        tokens.append("an access token")
    those = f"clients with {' or '.join(tokens)}" if tokens else "any client, without a token"
    if tokens and listener.anonymous:
        those = f"any client without a token, and {those}"
    yield f"Durable Streams by {carrier} (HTTP/1.1 and HTTP/2) on {listener.bind}, for {listener.clients(those)}"
    pages = "any origin" if "*" in listener.cors_origins else ", ".join(listener.cors_origins) or "its own origin only"
    yield f"Durable Streams in browsers: pages of {pages}"


def describe_names(listener: DurableListener) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe_names`."""
    if listener.names == "fixed":
        yield f"The URL {listener.path}NAME is stream NAME of basin {listener.basin}"
    else:
        yield f"The URL {listener.path}BASIN/NAME is stream NAME of basin BASIN"


def commands(listener: DurableListener, address: Address, example: Example) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.commands`. It leaves appending to other kinds if there are any."""
    names = names_of(listener)
    if (example.first and not example.alone) or names.basin not in (None, example.basin):
        return
    url = f"{'https' if listener.tls_certificate else 'http'}://{address}"
    url += names.path_of(StreamRef(example.basin, example.stream))
    curl = f"curl --cacert {shlex.quote(listener.tls_certificate)}" if listener.tls_certificate else "curl"
    if listener.proves_clients:
        curl += " --cert client.pem --key client-key.pem"
    if listener.auth_tokens:
        curl += ' -H "authorization: Bearer $TOKEN"'
    if example.first:
        text = "-H 'content-type: text/plain' -d"
        yield from (
            "",
            "  # create a stream, and append to it (Durable Streams)",
            f"  {curl} -X PUT '{url}' {text} first",
            f"  {curl} '{url}' {text} second",
        )
    yield from ("", "  # read it over Durable Streams", f"  {curl} '{url}'")
