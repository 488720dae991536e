"""Configuration of TLS for a listener; see `penstock.app.config.schema` and docs/tls.md."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from penstock.core.config_fields import Table, check_tls, key

__all__ = ["NamedCertificate", "TlsListener"]

_HostName = Annotated[str, Meta(pattern=r"^([*][.])?[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*\Z")]


class NamedCertificate(Table, frozen=True, kw_only=True):
    """A further certificate of a listener, for clients that ask for one of its names (SNI). All others get the
    listener's own tls_certificate."""

    certificate: Annotated[str, key("PEM file with the certificate chain.", example="other.pem", path=True)]
    key: Annotated[str, key("PEM file with its private key.", example="other-key.pem", path=True)]
    names: Annotated[
        tuple[_HostName, ...],
        key("Host names that it is for, also *.example.org; none: those that stand in the certificate."),
    ] = ()


class TlsListener(Table, frozen=True, kw_only=True):
    """Base of all listeners: TLS 1.2 or newer if there is a certificate. Files are read again when they change."""

    tls_certificate: Annotated[
        str | None, key("PEM file with the certificate chain; absent: no TLS.", example="certificate.pem", path=True)
    ] = None
    tls_key: Annotated[
        str | None, key("PEM file with the private key; goes with tls_certificate.", example="key.pem", path=True)
    ] = None
    tls_client_ca: Annotated[
        str | None,
        key(
            "PEM file with the authorities of clients' certificates; absent: clients are not asked for one.",
            example="clients.pem",
            path=True,
        ),
    ] = None
    tls_client_auth: Annotated[
        Literal["required", "optional"],
        key('With tls_client_ca. "required": who shows no certificate is refused; "optional": is served without one.'),
    ] = "required"
    tls_client_crl: Annotated[
        str | None,
        key(
            "PEM file with the revocation lists of those authorities; who stands in one is refused, and so is "
            "everybody of an authority whose list is missing or out of date.",
            example="revoked.pem",
            path=True,
        ),
    ] = None
    tls_handshake_seconds: Annotated[float, key("A TLS handshake must be complete within this.", least=0.1)] = 10.0
    tls_certificates: tuple[NamedCertificate, ...] = ()

    def check_tls(self) -> None:
        """Raise ValueError for keys that need others."""
        check_tls(self.tls_certificate, self.tls_key)
        for name in ("tls_client_ca", "tls_client_crl", "tls_certificates"):
            if getattr(self, name) and self.tls_certificate is None:
                raise ValueError(f"{name} is for TLS: give tls_certificate and tls_key too")
        for given, name in (
            (self.tls_client_crl is not None, "tls_client_crl"),
            (self.tls_client_auth == "optional", 'tls_client_auth = "optional"'),
        ):
            if given and self.tls_client_ca is None:
                raise ValueError(f"{name} is about clients' certificates: give tls_client_ca too")

    @property
    def proves_clients(self) -> bool:
        """True if every client must present a certificate of one of the authorities."""
        return self.tls_client_ca is not None and self.tls_client_auth == "required"
