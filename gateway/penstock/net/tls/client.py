"""TLS as a client: the trusted authorities, and the client certificate."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from penstock.core.errors import CannotStart
from penstock.net.tls.certificates import Reloaded
from penstock.net.tls.files import Described, certificates_in, no_password, text_of

__all__ = ["ClientTls"]


class ClientTls(Reloaded):
    """The TLS settings of a client: trusted authorities and client certificate. `context` is for one handshake: after a
    reload the next one gets another."""

    def __init__(
        self, ca_file: str | None = None, certificate: str | None = None, key: str | None = None, owner: str = "tls"
    ) -> None:
        """Load the files. `ca_file`: the trusted authorities (None: the system's); `key` may be in the certificate's
        file; `owner` appears in the log. Raises CannotStart naming the file that cannot be used."""
        if key is not None and certificate is None:
            raise CannotStart("tls: a key without a certificate")
        self._ca_file, self._certificate, self._key = ca_file, certificate, key
        super().__init__(owner, [path for path in (ca_file, certificate, key) if path is not None])

    @property
    def context(self) -> ssl.SSLContext:
        """The context from the files as they were last loaded."""
        return self._context

    def make(self) -> None:
        context = self._trusting()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        shown: list[Described] = []
        if self._certificate is not None:
            try:
                context.load_cert_chain(self._certificate, self._key, password=no_password)
            except OSError as error:  # ssl.SSLError is one
                files = self._certificate if self._key is None else f"{self._certificate} with key {self._key}"
                reason = text_of(error, files=(self._certificate, self._key) if self._key is not None else ())
                raise CannotStart(f"tls: cannot use the certificate {files}: {reason}") from error
            shown = certificates_in(self._certificate)
        self._context, self._shown = context, shown

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise CannotStart(f"tls: cannot use the authorities in {self._ca_file}: {text_of(error)}") from error

    def described(self) -> Iterator[tuple[str, Described]]:
        """Return the certificates of the client's own chain."""
        yield from ((self._certificate or "", certificate) for certificate in self._shown)
