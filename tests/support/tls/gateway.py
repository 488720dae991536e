"""A gateway with TLS on all listeners: of each kind one open to all clients and one that demands a certificate."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.pravega.clients import wait_until
from support.process import BASIN, GatewayProcess, running_gateway
from support.tls import client_context
from support.tls.authority import Authority, Issued

__all__ = ["SecuredGateway", "secured_gateway"]

_BOTH = """
[[listeners.KIND]]
name = "tls"
bind = "127.0.0.1:0"
tls_certificate = "server.pem"
tls_key = "server-key.pem"
EXTRA

[[listeners.KIND]]
name = "mutual"
bind = "127.0.0.1:0"
tls_certificate = "server.pem"
tls_key = "server-key.pem"
tls_client_ca = "authority.pem"
tls_client_crl = "authority.crl"
EXTRA
"""
_EXTRA = {
    "s2": '[[listeners.s2.tls_certificates]]\ncertificate = "other.pem"\nkey = "other-key.pem"',
    "s3p": f'basin = "{BASIN}"',
    "segment": f'basin = "{BASIN}"',
    "controller": 'segment_listener = "NAME"',
}
_REST = f"""
[management]
bind = "127.0.0.1:0"
tls_certificate = "server.pem"
tls_key = "server-key.pem"
tls_client_ca = "authority.pem"
tls_client_crl = "authority.crl"

[[identities]]
name = "ingest"
certificates = ["spiffe://example.org/ns/*/sa/ingest"]

[[routes]]
name = "ingest"
identity = ["ingest"]

[[routes]]
name = "guests"
listeners = ["s2.mutual", "s3p.mutual"]
read_only = true

[[routes]]
name = "anybody"

[store]
directory = "{{data}}"

[[store.basins]]
name = "{BASIN}"

[log]
format = "json"
"""


def _config() -> str:
    parts = []
    for kind, extra in _EXTRA.items():
        tls, mutual = (part for part in _BOTH.replace("KIND", kind).split("\n\n"))
        parts += [tls.replace("EXTRA", extra.replace("NAME", "tls")), ""]
        parts += [mutual.replace("EXTRA", extra.replace("NAME", "mutual")), ""]
    return "\n".join(parts) + _REST


class SecuredGateway(NamedTuple):
    """`authority` has issued the certificates of server and clients. `ingest` may do everything, `guest` only read
    where certificates are asked for."""

    process: GatewayProcess
    authority: Authority
    ingest: Issued
    guest: Issued

    def port(self, listener: str) -> int:
        """Return the port of a listener, such as `s2.mutual` or `management`."""
        names = {listener, f"listeners.{listener}"}
        return next(int(event["port"]) for event in self.process.events("listening") if event["listener"] in names)

    def context(self, shown: Issued | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts the gateway."""
        return client_context(self.authority, shown)

    def reload(self) -> None:
        """SIGHUP, and wait until it is done."""
        before = len(self.process.events("reloaded"))
        os.kill(self.process.pid, signal.SIGHUP)
        wait_until(lambda: len(self.process.events("reloaded")) > before)

    def refusals(self, listener: str) -> list[str]:
        """The reasons for which handshakes of this listener have failed, as the log has them."""
        names = {listener, f"listeners.{listener}"}
        return [event["reason"] for event in self.process.events("tls_refused") if event["listener"] in names]


def issue_server(authority: Authority, cn: str = "the server") -> Issued:
    """Issue the gateway's certificate."""
    return authority.issue("server", "localhost", "127.0.0.1", "gateway.example", cn=cn)


@contextmanager
def secured_gateway(folder: Path) -> Iterator[SecuredGateway]:
    """One that runs in `folder`, where the files of the certificates are too."""
    authority = Authority(folder)
    issue_server(authority)
    authority.issue("other", "other.example", cn="the other")
    ingest = authority.issue("ingest", "spiffe://example.org/ns/prod/sa/ingest", cn="ingest")
    guest = authority.issue("guest", "spiffe://example.org/ns/prod/sa/guest", cn="guest")
    with running_gateway(_config(), directory=folder) as process:
        yield SecuredGateway(process, authority, ingest, guest)
