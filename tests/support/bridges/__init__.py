"""A gateway with one server behind it: the pairs of the matrix, and what else runs over bridges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.real_backs import (
    Address,
    BackServer,
    DurableReference,
    KafkaBroker,
    PravegaStandalone,
    S2Lite,
    S3PReference,
    SecondPenstock,
)

__all__ = ["BRIDGES", "DIRECT", "DRAFT", "EMBEDDED", "REAL", "SECOND", "Bridge"]

ENVELOPES = """
[listeners.s3p.loss]
headers = "envelope"
empty_body = "envelope"

[listeners.segment.loss]
headers = "envelope"
empty_body = "envelope"

[listeners.durable.loss]
headers = "drop"
"""
"""Protocols that carry bodies alone get the rest in envelopes; Durable Streams has none, and gets bodies alone."""

BACK = """
[backs.far]
kind = "{kind}"
{addresses}

[[routes]]
name = "all"
basin = "{basin}"
back = "far"
"""
BACK_LOSS = """
[backs.far.loss]
headers = "envelope"
empty_body = "envelope"
"""
"""Commands are refused, as by default: in an envelope a fence would be stored, but have no effect."""


@dataclass(frozen=True)
class Bridge:
    """A back of a `kind`, the server behind it, and how to start that server (None: the embedded store).

    `real`: a third-party server, which need not be installed. `more`: further keys of the back's table. `largest`: the
    largest body that it takes, in bytes. `text_names`: names of headers must be UTF-8.
    """

    kind: str
    server: str
    start: Callable[[], BackServer] | None = None
    real: bool = False
    controller: bool = False
    more: str = ""
    largest: int = (1 << 20) - 8
    text_names: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.server}".replace(" ", "-")

    @contextlib.contextmanager
    def running(self, change: tuple[str, str] = ("", "")) -> Iterator[GatewayProcess]:
        """The gateway, with one text of its configuration replaced; skips the test if there is no server."""
        with contextlib.ExitStack() as stack:
            if self.start is None:
                text = CONFIG + ENVELOPES
            else:
                server = stack.enter_context(self.start())
                text = self.configuration(server.address, server.controller)
            yield stack.enter_context(running_gateway(text.replace(*change, 1)))

    def configuration(self, address: Address, controller: Address | None = None) -> str:
        """TOML of a gateway with the usual basin at a server there."""
        host, port = controller if controller is not None and self.controller else address
        key = "controller" if self.controller else "address"
        addresses = "\n".join([f'{key} = "{host}:{port}"', *([self.more] if self.more else [])])
        back = BACK.format(kind=self.kind, addresses=addresses, basin=BASIN)
        return CONFIG + ENVELOPES + back + (BACK_LOSS if self.kind in ("s3p", "segment") else "")


EMBEDDED = Bridge("embedded", "store")
SECOND = {
    "s2": Bridge("s2", "Penstock", lambda: SecondPenstock("s2")),
    "s3p": Bridge("s3p", "Penstock", lambda: SecondPenstock("s3p")),
    "segment": Bridge("segment", "Penstock", lambda: SecondPenstock("segment"), controller=True),
    "durable": Bridge("durable", "Penstock", lambda: SecondPenstock("durable"), largest=(1 << 20) - 16),
    "kafka": Bridge("kafka", "Penstock", lambda: SecondPenstock("kafka"), text_names=True),
}
REAL = {
    "s2": Bridge("s2", "s2 lite", S2Lite, real=True),
    "s3p": Bridge("s3p", "reference server", S3PReference, real=True),
    "segment": Bridge("segment", "Pravega", PravegaStandalone, real=True, controller=True),
    "durable": Bridge("durable", "reference server", DurableReference, real=True),
    "kafka": Bridge("kafka", "Apache Kafka", KafkaBroker, real=True, more="create_streams = true", text_names=True),
}
DIRECT = Bridge("segment", "Penstock without controller", lambda: SecondPenstock("segment"))
DRAFT = Bridge("segment", "Penstock in the draft", lambda: SecondPenstock("segment"), more='dialect = "draft"')
BRIDGES = [EMBEDDED, *SECOND.values(), DIRECT, DRAFT, *REAL.values()]
"""All that the matrix has a column for."""
