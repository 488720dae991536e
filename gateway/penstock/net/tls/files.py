"""The contents of PEM files, and the reasons for which they cannot be used.

The parser of certificates is imported where it is used: it is a twentieth of the start of a gateway without TLS.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

__all__ = ["Described", "certificates_in", "no_password", "revocation_lists_in", "stamp_of", "text_of"]

_REASONS: Final = (
    ("KEY_VALUES_MISMATCH", "the key belongs to another certificate"),
    ("EE_KEY_TOO_SMALL", "the key is too small to be safe"),
    ("CA_MD_TOO_WEAK", "the signature is too weak to be safe"),
    ("NO_CERTIFICATE_OR_CRL_FOUND", "the file contains none"),
)

CERTIFICATE_ENDS_SOON: Final = 14 * 86_400.0
"""Seconds before its end from which a certificate should be replaced: automatic renewals happen earlier."""
LIST_ENDS_SOON: Final = 86_400.0
"""Seconds before its end from which a revocation list should be replaced: lists are renewed every few hours or days."""

Stamp = tuple[int, int, int, int] | None


class Described(msgspec.Struct, frozen=True):
    """A certificate or a revocation list: its subject or issuer, the end of its validity (None: never), and the host
    names in it. `soon`: seconds before the end from which it should be replaced."""

    subject: str
    until: datetime | None
    names: tuple[str, ...] = ()
    soon: float = CERTIFICATE_ENDS_SOON


def stamp_of(path: str) -> Stamp:
    """Return a stamp that differs when the file, or the target of a symbolic link, has changed: mtime, size, inode and
    device. None if there is no file."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


def certificates_in(path: str) -> list[Described]:
    """Return the certificates of a file, in its order. A file that OpenSSL can read and this parser cannot yields none:
    its names and expiry are then unknown."""
    from cryptography import x509

    try:
        return [_described(entry) for entry in x509.load_pem_x509_certificates(Path(path).read_bytes())]
    except (OSError, ValueError):
        return []


def revocation_lists_in(path: str) -> list[Described]:
    """Return the revocation lists of a file. Raises ValueError if there is none or one cannot be parsed, and
    OSError."""
    from cryptography import x509

    end = b"-----END X509 CRL-----"
    parts = Path(path).read_bytes().split(end)[:-1]
    lists = [x509.load_pem_x509_crl(part[part.index(b"-----BEGIN X509 CRL-----") :] + end + b"\n") for part in parts]
    if not lists:
        raise ValueError("the file contains no revocation list")
    return [
        Described(revocations.issuer.rfc4514_string(), revocations.next_update_utc, soon=LIST_ENDS_SOON)
        for revocations in lists
    ]


def _described(certificate: Certificate) -> Described:
    names = tuple(_host_names(certificate))
    subject = certificate.subject.rfc4514_string() or ", ".join(names)
    return Described(subject, certificate.not_valid_after_utc, names)


def _host_names(certificate: Certificate) -> Iterator[str]:
    """Return the DNS names of a certificate, else its common name."""
    from cryptography import x509

    try:
        names: Sequence[str] = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = [str(entry.value) for entry in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    yield from (name.lower() for name in names)


def no_password() -> str:
    """Raise OSError instead of letting OpenSSL ask for a password on the terminal, where a service would hang."""
    raise OSError("the key is encrypted, and there is no terminal to ask for its password")


def text_of(error: OSError, otherwise: str | None = None, files: Sequence[str | None] = ()) -> str:
    """Return why a file cannot be used. `otherwise`: the text for errors of OpenSSL that users would not understand;
    `files`: the candidates, if the error does not name the file."""
    if not isinstance(error, ssl.SSLError):
        reason = error.strerror or str(error)
        return next(
            (f"{path}: {reason}" for path in files if path is not None and not os.access(path, os.R_OK)), reason
        )
    told = f"{error.reason or ''} {error}"
    return next((text for key, text in _REASONS if key in told), otherwise or error.reason or str(error))
