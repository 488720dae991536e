"""Encryption of the records of a stream with a cipher (S2 fact sheet, 5.5).

Each record is encrypted alone, headers and body together, and takes the place of its body in the stored batch. So
sequence numbers, timestamps, sizes and positions are found without the key. The key comes with each append and read,
and is not kept. Layout of an encrypted record:

    1 byte     format: 1 AEGIS-256, 2 AES-256-GCM
    32 or 12   nonce, random
    ...        ciphertext: the record as a message of `S2_RECORDS`, without number and timestamp
    16 bytes   tag, which also authenticates the stream's name

Command records stay in plain text, since the store carries them out. A batch's metered size is that of its plain
records.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.core.encryption import EncryptionKey, missing_key
from penstock.store.batches import broken, decode_stored
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import U64_MAX, Columns, Headers, RecordBatch, StreamRef, is_command
from penstock_codecs.operations import Append
from penstock_codecs.s2.protobuf import encode_records
from penstock_codecs.streams import Cipher

__all__ = ["RecordCipher", "record_cipher"]

TAG_BYTES: Final = 16

Crypt = Callable[[bytes, bytes, bytes], bytes]
"""Takes a nonce, data, and data to authenticate only. Decrypting raises ValueError if the key or the data is wrong."""


class _Suite(NamedTuple):
    """A cipher's place in the layout. `last_seq`: the last number of a record: more nonces might repeat. `make`:
    returns the functions that encrypt and decrypt with a key."""

    format: bytes
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
    Cipher.AEGIS_256: _Suite(b"\x01", 32, U64_MAX - 1, _aegis),
    Cipher.AES_256_GCM: _Suite(b"\x02", 12, 2**32 - 1, _aes_gcm),
}


def record_cipher(cipher: Cipher | None, key: EncryptionKey | None, stream: StreamRef) -> RecordCipher | None:
    """Return what encrypts and decrypts the stream's records; None if it has no cipher, whatever the key.

    Raises OperationFailed(ENCRYPTION_KEY) if the key is missing or malformed.
    """
    if cipher is None:
        return None
    if key is None:
        raise missing_key(cipher, stream)
    return RecordCipher(cipher, key.decoded(cipher), stream)


class RecordCipher:
    """Encrypts and decrypts the records of one stream with one key."""

    def __init__(self, cipher: Cipher, key: bytes, stream: StreamRef) -> None:
        self._suite = _SUITES[cipher]
        self._encrypt, self._decrypt = self._suite.make(key)
        self._named = f"{stream.basin}\0{stream.stream}".encode()

    def sealed(self, append: Append, next_seq: int) -> Append:
        """Return the append with its records encrypted; `next_seq` is the number of the first.

        Raises OperationFailed(INVALID) if the cipher allows no more records.
        """
        last = next_seq + len(append.bodies) - 1
        if last > self._suite.last_seq:
            why = f"max assignable sequence number is {self._suite.last_seq}; attempted {last}"
            raise fail(FailureCode.INVALID, why)
        commands = {index: some for index, some in append.headers.items() if is_command(some)}
        bodies = [
            body if index in commands else self._sealed(body, append.headers.get(index, ()))
            for index, body in enumerate(append.bodies)
        ]
        return replace(append, bodies=bodies, headers=commands, wire=None)

    def opened(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch with its records decrypted.

        Raises OperationFailed: DECRYPTION_FAILED if the key is another than the one they were encrypted with, STORAGE
        if they are damaged.
        """
        columns = batch.columns
        plain = decode_stored(
            b"".join(
                _encoded(body, columns.headers[index]) if index in columns.headers else self._opened(body)
                for index, body in enumerate(columns.bodies)
            )
        )
        if len(plain.bodies) != batch.count:
            raise broken(f"it has {len(plain.bodies)} records instead of {batch.count}")
        found = Columns(columns.seq_nums, columns.timestamps, plain.bodies, plain.headers)
        return RecordBatch(found, first_id=batch.first_id, tail=batch.tail)

    def _sealed(self, body: bytes, headers: Headers) -> bytes:
        nonce = os.urandom(self._suite.nonce_bytes)
        return self._suite.format + nonce + self._encrypt(nonce, _encoded(body, headers), self._named)

    def _opened(self, body: bytes) -> bytes:
        start = 1 + self._suite.nonce_bytes
        if body[:1] != self._suite.format or len(body) < start + TAG_BYTES:
            raise broken("a record is not encrypted with the stream's cipher")
        try:
            return self._decrypt(body[1:start], body[start:], self._named)
        except ValueError:
            raise fail(FailureCode.DECRYPTION_FAILED, "record decryption failed") from None


def _encoded(body: bytes, headers: Headers) -> bytes:
    return encode_records(Columns((0,), (0,), [body], {0: headers} if headers else {}))
