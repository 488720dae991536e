"""Encryption of the records of a stream with a cipher (S2 fact sheet, 5.5).

Each record is encrypted alone, headers and body together, and takes the place of its body in the stored batch. So
sequence numbers, timestamps, sizes and positions are found without the key. The key comes with each append and read,
and is not kept. Layout of an encrypted record:

    1 byte     format: 3 AEGIS-256, 4 AES-256-GCM; 1 and 2 in records of before schema version 9
    32 or 12   nonce, random
    ...        ciphertext: the record as a message of `RECORDS`, without number and timestamp
    16 bytes   tag, which also authenticates the stream and the record's sequence number

So a record opens at its own place alone: one that was copied or moved on the disk does not. The stream is its name and
its incarnation, since a later stream may have the name. In formats 1 and 2 the tag authenticates the name alone.

Command records stay in plain text, since the store carries them out. A batch's metered size is that of its plain
records. Neither commands nor timestamps are authenticated, nor is the end of the stream.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.core.encryption import EncryptionKey, missing_key
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append
from penstock.model.record_encoding import encode_records
from penstock.model.records import U64_MAX, Columns, Headers, RecordBatch, StreamRef, is_command
from penstock.model.streams import Cipher
from penstock.store.batches import broken, decode_stored
from penstock.store.heads import StoredStream

__all__ = ["RecordCipher", "record_cipher", "wrong_key"]

TAG_BYTES: Final = 16

Crypt = Callable[[bytes, bytes, bytes], bytes]
"""Takes a nonce, data, and data to authenticate only. Decrypting raises ValueError if the key or the data is wrong."""


class _Suite(NamedTuple):
    """A cipher's place in the layout. `unbound_format`: that of records which are not bound to their sequence number.
    `last_seq`: the last number of a record: more nonces might repeat. `make`: returns the functions that encrypt and
    decrypt with a key."""

    format: bytes
    unbound_format: bytes
    nonce_bytes: int
    last_seq: int
    make: Callable[[bytes], tuple[Crypt, Crypt]]


# The ciphers are imported where they are used: most gateways have none, and start faster without.


def _aegis(key: bytes) -> tuple[Crypt, Crypt]:
    from aeg import aegis256

    def encrypt(nonce: bytes, data: bytes, also: bytes) -> bytes:
        return bytes(aegis256.encrypt(key, nonce, data, also, maclen=TAG_BYTES))

    def decrypt(nonce: bytes, data: bytes, also: bytes) -> bytes:
        return bytes(aegis256.decrypt(key, nonce, data, also, maclen=TAG_BYTES))

    return encrypt, decrypt


def _aes_gcm(key: bytes) -> tuple[Crypt, Crypt]:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)

    def decrypt(nonce: bytes, data: bytes, also: bytes) -> bytes:
        try:
            return cipher.decrypt(nonce, data, also)
        except InvalidTag:
            raise ValueError("the tag is wrong") from None

    return cipher.encrypt, decrypt


_SUITES: Final = {
    Cipher.AEGIS_256: _Suite(b"\x03", b"\x01", 32, U64_MAX - 1, _aegis),
    Cipher.AES_256_GCM: _Suite(b"\x04", b"\x02", 12, 2**32 - 1, _aes_gcm),
}


def record_cipher(stream: StoredStream, key: EncryptionKey | None) -> RecordCipher | None:
    """Return what encrypts and decrypts the stream's records; None if it has no cipher, whatever the key.

    Raises OperationFailed(ENCRYPTION_KEY) if the key is missing or malformed.
    """
    cipher = stream.head.cipher
    if cipher is None:
        return None
    if key is None:
        raise missing_key(cipher, stream.ref)
    return RecordCipher(cipher, key.decoded(cipher), stream.ref, stream.incarnation)


def wrong_key() -> OperationFailed:
    """Return the DECRYPTION_FAILED error for a key other than that of the stream's records; the text is S2's."""
    return fail(FailureCode.DECRYPTION_FAILED, "record decryption failed")


class RecordCipher:
    """Encrypts and decrypts the records of one stream with one key. `key_check`: the key's check value, which tells
    whether another key is the same, and from which neither can be computed."""

    def __init__(self, cipher: Cipher, key: bytes, stream: StreamRef, incarnation: str) -> None:
        self._suite = _SUITES[cipher]
        self._encrypt, self._decrypt = self._suite.make(key)
        self._named = f"{stream.basin}\0{stream.stream}".encode()
        self._bound = self._named + f"\0{incarnation}\0".encode()
        self.key_check = hmac.digest(key, b"penstock key check\0" + self._named, "sha256")

    def sealed(self, append: Append, next_seq: int) -> Append:
        """Return the append with its records encrypted; `next_seq` is the number of the first.

        Raises OperationFailed(INVALID) if the cipher allows no more records.
        """
        last = next_seq + len(append.bodies) - 1
        if last > self._suite.last_seq:
            reason = f"max assignable sequence number is {self._suite.last_seq}; attempted {last}"
            raise fail(FailureCode.INVALID, reason)
        commands = {index: some for index, some in append.headers.items() if is_command(some)}
        bodies = [
            body if index in commands else self._sealed(body, append.headers.get(index, ()), next_seq + index)
            for index, body in enumerate(append.bodies)
        ]
        return replace(append, bodies=bodies, headers=commands, wire=None)

    def opened(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch with its records decrypted.

        Raises OperationFailed: DECRYPTION_FAILED if the key is another than the one they were encrypted with, or a
        record is at another place than it was appended to; DAMAGED if they are not encrypted records.
        """
        columns, first = batch.columns, batch.first_seq_num
        plain = decode_stored(
            b"".join(
                _encoded(body, columns.headers[index])
                if is_command(columns.headers.get(index, ()))
                else self._opened(body, first + index)
                for index, body in enumerate(columns.bodies)
            ),
            None,
        )
        if len(plain.bodies) != batch.count:
            raise broken(f"it has {len(plain.bodies)} records instead of {batch.count}")
        records = Columns(range(first, first + batch.count), columns.timestamps, plain.bodies, plain.headers)
        return RecordBatch(records, first_id=batch.first_id, tail=batch.tail)

    def _sealed(self, body: bytes, headers: Headers, seq_num: int) -> bytes:
        nonce = os.urandom(self._suite.nonce_bytes)
        authenticated = self._bound + seq_num.to_bytes(8)
        return self._suite.format + nonce + self._encrypt(nonce, _encoded(body, headers), authenticated)

    def _opened(self, body: bytes, seq_num: int) -> bytes:
        start = 1 + self._suite.nonce_bytes
        authenticated = self._bound + seq_num.to_bytes(8) if body[:1] == self._suite.format else self._named
        if body[:1] not in (self._suite.format, self._suite.unbound_format) or len(body) < start + TAG_BYTES:
            raise broken("a record is not encrypted with the stream's cipher")
        try:
            return self._decrypt(body[1:start], body[start:], authenticated)
        except ValueError:
            raise wrong_key() from None


def _encoded(body: bytes, headers: Headers) -> bytes:
    return encode_records(Columns((0,), (0,), [body], {0: headers} if headers else {}))
