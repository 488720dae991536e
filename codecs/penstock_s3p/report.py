"""Texts about S3P listeners for people: reports, plans of losses, and the first commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from penstock.core.address import Address
from penstock.protocols.plugin import Example
from penstock.routing.loss.plan import BackSide, Fate, FrontSide, Item
from penstock_s3p.config import S3PListener

__all__ = ["S3PSide", "commands", "describe", "describe_names"]


class S3PSide(FrontSide):
    """Clients of S3P, whose records are bodies with identifiers."""

    def positions(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of positions that its clients read."""
        yield Item("identifiers", Fate.KEPT, "" if back.record_ids else "from the timestamps")


def describe(listener: S3PListener) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe`."""
    carrier = " by TLS" if listener.tls_certificate else ""
    yield f"S3P 0.2.0{carrier} on {listener.bind}, for {listener.clients('any client')}"


def describe_names(listener: S3PListener) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe_names`."""
    if listener.names == "fixed":
        yield f"An S3P name is a stream of basin {listener.basin}, the only basin for S3P clients"
    else:
        yield "An S3P name is basin/stream, split at the first slash; S3P clients can use every basin"
    yield "%XX stands for each byte that an S2 name cannot hold: invalid UTF-8, NUL, and % itself (docs/names.md)"


def commands(listener: S3PListener, address: Address, example: Example) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.commands`."""
    name = example.stream if listener.names == "fixed" else f"{example.basin}/{example.stream}"
    url = f"s3p{'+tls' if listener.tls_certificate else ''}://{address}/{name}"
    if listener.tls_certificate:
        url += f" --tls-ca {shlex.quote(listener.tls_certificate)}"
        url += " --tls-certificate client.pem --tls-key client-key.pem" if listener.proves_clients else ""
    if example.first:
        append = f"printf 'first\\nsecond\\n' | penstock append {url}"
        yield from ("", "  # create a stream, and append two records (S3P)", f"  penstock create {url}", f"  {append}")
    yield from ("", "  # read it over S3P", f"  penstock read {url}")
