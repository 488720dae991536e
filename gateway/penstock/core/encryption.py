"""The key that a client presents for the records of an encrypted stream.

It travels with the client's identity, since the code between a front and a back need not know of it. It is never
stored, and its text never appears in a message or a log. From the first key on, the process leaves no dumps of its
memory (`penstock.core.dumps`).
"""

from __future__ import annotations

from binascii import Error
from dataclasses import dataclass, field
from typing import Final

import pybase64

from penstock.core.dumps import forbid_dumps
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.model.streams import Cipher

__all__ = ["KEY_BYTES", "EncryptionKey", "missing_key"]

KEY_BYTES: Final = 32
"""Length of the keys of all ciphers."""


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key, in base64 as the client sent it. It is decoded when the cipher is known: plain streams ignore keys."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        forbid_dumps()

    def decoded(self, cipher: Cipher) -> bytes:
        """Return the key for this cipher. Raises OperationFailed(ENCRYPTION_KEY) if it is malformed."""
        try:
            key = pybase64.b64decode(self.text, validate=True)
        except (Error, ValueError):
            raise _refused(f"invalid encryption key for stream cipher '{cipher.value}': invalid base64") from None
        if len(key) != KEY_BYTES:
            raise _refused(f"invalid encryption key length for stream cipher '{cipher.value}': {len(key)}")
        return key


def missing_key(cipher: Cipher, stream: StreamRef) -> OperationFailed:
    """Return the ENCRYPTION_KEY error for a client that presents no key for an encrypted stream."""
    return _refused(f"missing encryption key for stream cipher '{cipher.value}': {stream} is encrypted")


def _refused(reason: str) -> OperationFailed:
    return fail(FailureCode.ENCRYPTION_KEY, reason)
