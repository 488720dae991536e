"""TLS as a server: certificates by the requested host name (SNI), and verification of client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import trio

from penstock.core.errors import CannotStart
from penstock.net.tls.certificates import Reloaded
from penstock.net.tls.files import Described, certificates_in, no_password, revocation_lists_in, text_of

__all__ = ["Pair", "ServerFiles", "ServerTls", "tls_context", "tls_stream"]

HTTP_ALPN: Final = ("h2", "http/1.1")
"""Protocols that HTTP servers offer by ALPN."""
_TLS_1_2_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers with forward secrecy and authenticated encryption, as in Mozilla's profile `intermediate`; in TLS 1.3 all are
like that."""


class Pair(msgspec.Struct, frozen=True):
    """The file of a certificate chain, and of its key (None: the same). `names`: host names that it is for; empty:
    those in the certificate."""

    certificate: str
    key: str | None
    names: tuple[str, ...] = ()

    @property
    def files(self) -> str:
        """Both files, for messages."""
        return f"{self.certificate} and {self.key or self.certificate}"


class ServerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files and options of a listener's TLS.

    `pair`: the default certificate, for clients that request none of the names of `others`. `client_ca`: the
    authorities of client certificates (None: no certificate is requested); `required`: clients without a certificate
    are refused. `client_crl`: revocation lists of client certificates. `alpn`: the protocols to negotiate, the
    preferred one first; empty: no ALPN.
    """

    pair: Pair
    others: tuple[Pair, ...] = ()
    client_ca: str | None = None
    client_crl: str | None = None
    required: bool = True
    alpn: tuple[str, ...] = HTTP_ALPN

    @property
    def paths(self) -> list[str]:
        """All paths."""
        pairs = [path for pair in (self.pair, *self.others) for path in (pair.certificate, pair.key)]
        return [path for path in (*pairs, self.client_ca, self.client_crl) if path is not None]


class ServerTls(Reloaded):
    """The TLS of a listener. `context` is for one handshake: after a reload the next one gets another.

    Sessions are not resumed if clients present certificates: each handshake verifies them again.
    """

    def __init__(self, owner: str, files: ServerFiles) -> None:
        """Load the files. `owner`: the listener, as `listeners.s2`. Raises CannotStart naming the file that cannot be
        used."""
        self._files = files
        super().__init__(owner, files.paths)

    @property
    def context(self) -> ssl.SSLContext:
        """The context from the files as they were last loaded."""
        return self._context

    def make(self) -> None:
        files = self._files
        described: list[tuple[str, Described]] = []
        context = self._of_pair(files.pair, described)
        names: dict[str, ssl.SSLContext] = {}
        for pair in files.others:
            about: list[tuple[str, Described]] = []
            other = self._of_pair(pair, about)
            own = pair.names or (about[0][1].names if about else ())
            if not own:
                raise CannotStart(f"{self.owner}: {pair.certificate} contains no host name: set `names`")
            names = {**dict.fromkeys(map(str.lower, own), other), **names}
            described += about
        if names:
            context.sni_callback = _by_name(names)
        self._context = context
        self._found = [*described, *self._of_authorities()]

    def _of_pair(self, pair: Pair, described: list[tuple[str, Described]]) -> ssl.SSLContext:
        files = self._files
        try:
            context = tls_context(pair.certificate, pair.key, files.alpn)
        except OSError as error:  # ssl.SSLError is one
            reason = text_of(error, "they are not a PEM certificate chain and its key", (pair.certificate, pair.key))
            raise CannotStart(f"{self.owner}: cannot use {pair.files} for TLS: {reason}") from error
        if files.client_ca is not None:
            self._ask(context, files.client_ca)
        described += [(pair.certificate, certificate) for certificate in certificates_in(pair.certificate)]
        return context

    def _ask(self, context: ssl.SSLContext, authorities: str) -> None:
        """Let the context request a client certificate."""
        self._load(context, authorities, "clients' authorities")
        if (lists := self._files.client_crl) is not None:
            self._load(context, lists, "revocation lists")
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        context.verify_mode = ssl.CERT_REQUIRED if self._files.required else ssl.CERT_OPTIONAL
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET

    def _load(self, context: ssl.SSLContext, path: str, what: str) -> None:
        try:
            context.load_verify_locations(path)
        except OSError as error:
            raise CannotStart(f"{self.owner}: cannot use the {what} in {path}: {text_of(error)}") from error

    def _of_authorities(self) -> Iterator[tuple[str, Described]]:
        files = self._files
        if files.client_ca is not None:
            yield from ((files.client_ca, certificate) for certificate in certificates_in(files.client_ca))
        if files.client_crl is not None:
            try:
                lists = revocation_lists_in(files.client_crl)
            except (OSError, ValueError) as error:
                raise CannotStart(
                    f"{self.owner}: cannot use the revocation lists in {files.client_crl}: {error}"
                ) from error
            yield from ((files.client_crl, certificate) for certificate in lists)

    def described(self) -> Iterator[tuple[str, Described]]:
        """Return the server's own certificates, and the authorities and revocation lists that client certificates are
        verified with."""
        yield from self._found


def _by_name(names: Mapping[str, ssl.SSLContext]) -> Callable[[ssl.SSLObject, str, ssl.SSLContext], None]:
    def choose(connection: ssl.SSLObject, asked: str, _context: ssl.SSLContext) -> None:
        name = (asked or "").lower().rstrip(".")  # None if the client sent no SNI
        found = names.get(name) or names.get("*." + name.partition(".")[2])
        if found is not None:
            connection.context = found

    return choose


def tls_context(certificate: str, key: str | None = None, protocols: Sequence[str] = HTTP_ALPN) -> ssl.SSLContext:
    """Return a server's TLS context that offers these protocols. Raises OSError or ssl.SSLError for unusable files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS_1_2_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client of TLS 1.2 could keep a core busy with it
    context.load_cert_chain(certificate, key, password=no_password)
    context.set_alpn_protocols(protocols)
    return context


def tls_stream(stream: trio.abc.Stream, context: ssl.SSLContext) -> trio.SSLStream[trio.abc.Stream]:
    """Return the server side of a TLS connection over `stream`, before its handshake."""
    return trio.SSLStream(stream, context, server_side=True, https_compatible=True)
