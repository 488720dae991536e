"""Texts about segment listeners for people: reports and plans of losses."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.address import Address
from penstock.model.operations import Capability
from penstock.protocols.plugin import Example
from penstock.protocols.tables import ConfigView
from penstock.routing.loss.plan import BackSide, Fate, FrontSide, Item, bodies, carried
from penstock_pravega.segment.config import SegmentListener

__all__ = ["SegmentSide", "commands", "describe", "describe_access"]


class SegmentSide(FrontSide):
    """Clients of segments, which append events as bytes, as writers with positions."""

    def appends(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of each feature of what its clients append."""
        yield from bodies(back, "events")
        if self.loss is not None and self.loss.envelopes:
            for item in carried(back):
                refused = item.fate is Fate.DROPPED and not back.byte_offsets  # readers would get fewer bytes
                fate, how = (Fate.REFUSED, "") if refused else (item.fate, item.how)
                yield Item(f"{item.what} in envelopes", fate, how)
        if not back.byte_offsets:
            whole = Capability.HEADERS in back.capabilities
            yield Item(
                "larger events, and bytes that are not events",
                Fate.KEPT if whole else Fate.REFUSED,
                "as pieces, which have headers" if whole else "pieces of them need headers",
            )
        beside = "" if back.byte_offsets else "beside the server, in the gateway's state"
        yield Item("positions of writers", Fate.KEPT, beside)
        until = "" if back.byte_offsets else "apart from the stream until they are committed"
        yield from back.for_bytes or (Item("transactions", Fate.KEPT, until),)

    def positions(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of positions that its clients read."""
        counted = "" if back.byte_offsets else "counted by the gateway, kept in its index"
        yield Item("byte offsets", Fate.KEPT, counted)


def describe(listener: SegmentListener) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe`."""
    carrier = "TLS" if listener.tls_certificate else "TCP"
    yield f"Segments (Pravega's protocol, wire versions 5 to 16, and the draft) by {carrier} on {listener.bind}"
    needed = "clients with a delegation token" if listener.delegation_tokens else "any client"
    yield f"Clients of segments: {listener.clients(needed)}"


def describe_access(listener: SegmentListener, config: ConfigView) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe_access`."""
    if listener.delegation_tokens:
        users = " or ".join(config.usernames) or "an identity with a username, but none is configured"
        yield (
            f"all requests need a delegation token, valid for {listener.delegation_token_seconds} s, which its "
            f"controllers issue for the password of {users}"
        )


def commands(listener: SegmentListener, address: Address, example: Example) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.commands`. Its clients need a controller, so it has none beside other
    kinds."""
    if not example.alone or listener.tls_certificate is not None:
        return
    url = f"segment://{address}/{example.basin}/{example.stream}"
    yield from (
        "",
        "  # create a segment, append two events, and read them",
        f"  penstock create {url}",
        f"  printf 'first\\nsecond\\n' | penstock append {url}",
        f"  penstock read {url}",
    )
