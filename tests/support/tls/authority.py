"""A private certificate authority for tests: server and client certificates, also expired, revoked, or nameless."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "Issued"]

_HOUR = timedelta(hours=1)


class Issued(NamedTuple):
    """The files of a certificate and its key, and the certificate."""

    certificate: str
    key: str
    parsed: x509.Certificate

    @property
    def pair(self) -> tuple[str, str]:
        """As curl, requests and others want it."""
        return self.certificate, self.key


class Authority:
    """Writes what it issues into a folder. `ca` is the file of its own certificate, `crl` that of its list."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._subject)
            .issuer_name(self._subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _HOUR)
            .not_valid_after(now + timedelta(days=100))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = str(folder / f"{name}.pem")
        Path(self.ca).write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self.crl = str(folder / f"{name}.crl")
        self.revoke()

    def issue(
        self,
        file: str,
        *names: str,
        cn: str = "somebody",
        until: timedelta = timedelta(days=30),
        to: Path | None = None,
    ) -> Issued:
        """A certificate called `FILE.pem` with its key `FILE-key.pem`, in `to` or the authority's folder. `names`: host
        names, numbers, URIs (with ://) and mailboxes (with @). `until`: from now, negative for one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)] if cn else []))
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + until) - _HOUR)
            .not_valid_after(now + until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            certificate = certificate.add_extension(x509.SubjectAlternativeName(map(_name, names)), critical=False)
        signed = certificate.sign(self._key, hashes.SHA256())
        folder = to or self.folder
        files = folder / f"{file}.pem", folder / f"{file}-key.pem"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Issued(str(files[0]), str(files[1]), signed)

    def revoke(self, *issued: Issued, until: timedelta = timedelta(days=7)) -> None:
        """Write the list anew, with just these in it."""
        now = datetime.now(UTC)
        revoked = x509.CertificateRevocationListBuilder().issuer_name(self._subject)
        revoked = revoked.last_update(min(now, now + until) - _HOUR).next_update(now + until)
        for one in issued:
            entry = x509.RevokedCertificateBuilder().serial_number(one.parsed.serial_number).revocation_date(now)
            revoked = revoked.add_revoked_certificate(entry.build())
        signed = revoked.sign(self._key, hashes.SHA256())
        Path(self.crl).write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _name(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    if "@" in text:
        return x509.RFC822Name(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
