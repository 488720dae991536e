"""SASL's mechanisms, of both sides and without I/O: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

SCRAM proves a secret without sending it, so the server must know the secret's text, or what the secret was made into
when it was set. Names and secrets are compared as they are, without SASLprep.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.model.failures import FailureCode, OperationFailed, fail

__all__ = ["SCRAM_HASHES", "PlainCredentials", "ScramClient", "ScramServer", "plain_credentials", "plain_message"]

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism of SCRAM."""
_ITERATIONS: Final = 4096
"""Iterations of the hash function, as RFC 7677 asks for; also Kafka's."""
_MOST_ITERATIONS: Final = 100_000
"""Iterations that a server may ask for: they take some 50 ms."""


class PlainCredentials(NamedTuple):
    """The name and the secret that a client has sent."""

    name: str
    secret: str


def plain_credentials(message: bytes) -> PlainCredentials:
    """Parse the only message of PLAIN. A client may act for itself alone. Raises AUTHN."""
    parts = message.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise _refused("PLAIN wants a name and a secret")
    try:
        acts_for, name, secret = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise _refused("PLAIN wants a name and a secret in UTF-8") from None
    if acts_for not in ("", name):
        raise _refused("a client cannot act for another one")
    return PlainCredentials(name, secret)


def plain_message(name: str, secret: str) -> bytes:
    """Return the only message of PLAIN, of a client that acts for itself."""
    return f"\0{name}\0{secret}".encode()


class ScramClient:
    """The client's end of one exchange of SCRAM. `nonce` is printable text that no other exchange has."""

    def __init__(self, mechanism: str, name: str, secret: str, nonce: str) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self._secret = secret
        self._nonce = nonce
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}".encode()
        self._expected = b""

    def first(self) -> bytes:
        """Return the first message."""
        return b"n,," + self._bare

    def final(self, response: bytes) -> bytes:
        """Return the second message, for the server's answer to the first. Raises AUTHN."""
        fields = _fields(response)
        nonce, count = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise _refused("the server's first message is not of this exchange")
        iterations = int(count) if count.isdecimal() and len(count) < 10 else 0
        if not _ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise _refused(f"the server asks for {count!r:.20} iterations, not {_ITERATIONS} to {_MOST_ITERATIONS}")
        try:
            salt = base64.b64decode(fields.get("s", ""), validate=True)
        except ValueError:
            raise _refused("the salt is not Base64") from None
        salted = _salted(self._hash, self._secret, salt, iterations)
        without_proof = f"c=biws,r={nonce}".encode()
        signed = b",".join((self._bare, response, without_proof))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return without_proof + b",p=" + base64.b64encode(proof)

    def check(self, response: bytes) -> None:
        """Check that the server knows the secret, by its answer to the second message. Raises AUTHN."""
        if not hmac.compare_digest(b"v=" + base64.b64encode(self._expected), response):
            raise _refused("the server has not proven that it knows the secret")


class ScramServer:
    """One exchange of SCRAM. `secrets_of` returns the secrets of a name, one of which the client must know; `nonce` is
    printable text that no other exchange has; `salt_of` returns the salt of a name, known or not: always the same."""

    def __init__(
        self,
        mechanism: str,
        secrets_of: Callable[[str], Sequence[str]],
        salt_of: Callable[[str], bytes],
        nonce: str,
    ) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self._secrets_of = secrets_of
        self._salt_of = salt_of
        self._nonce = nonce
        self._said = b""
        self._binding = ""
        self.name = ""
        """The name that the client gives."""

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message. Raises AUTHN."""
        flag, comma, rest = message.partition(b",")
        acts_for, other_comma, bare = rest.partition(b",")
        if flag not in (b"n", b"y") or not comma or not other_comma:
            raise _refused("SCRAM without channel binding is known")
        fields = _fields(bare)
        name, nonce = fields.get("n", ""), fields.get("r", "")
        self.name = name.replace("=2C", ",").replace("=3D", "=")
        if not name or not nonce or "m" in fields:
            raise _refused("the client's first message has a name and a nonce")
        if acts_for not in (b"", b"a=" + name.encode()):
            raise _refused("a client cannot act for another one")
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(self._salt_of(self.name)).decode()
        response = f"r={self._nonce},s={salt},i={_ITERATIONS}".encode()
        self._binding = base64.b64encode(flag + b"," + acts_for + b",").decode()
        self._said = bare + b"," + response
        return response

    def final(self, message: bytes) -> tuple[str, bytes]:
        """Check the client's second message. Return the secret that it has proven, and the answer. Raises AUTHN."""
        without_proof, _, _ = message.rpartition(b",p=")
        fields = _fields(message)
        if fields.get("r") != self._nonce or fields.get("c") != self._binding:
            raise _refused("the client's second message is not of this exchange")
        try:
            proof = base64.b64decode(fields.get("p", ""), validate=True)
        except ValueError:
            raise _refused("the proof is not Base64") from None
        signed, salt = self._said + b"," + without_proof, self._salt_of(self.name)
        for secret in self._secrets_of(self.name):
            salted = _salted(self._hash, secret, salt, _ITERATIONS)
            client_key = self._mac(salted, b"Client Key")
            stored_key = hashlib.new(self._hash, client_key).digest()
            expected = bytes(a ^ b for a, b in zip(client_key, self._mac(stored_key, signed), strict=True))
            if hmac.compare_digest(expected, proof):
                server_key = self._mac(salted, b"Server Key")
                return secret, b"v=" + base64.b64encode(self._mac(server_key, signed))
        raise _refused("name or secret is wrong")

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


@lru_cache(maxsize=1000)
def _salted(hash_name: str, secret: str, salt: bytes, iterations: int) -> bytes:
    """Return the key that a secret is made into, which takes some milliseconds."""
    return hashlib.pbkdf2_hmac(hash_name, secret.encode(), salt, iterations)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise _refused("messages of SCRAM are UTF-8") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}


def _refused(reason: str) -> OperationFailed:
    return fail(FailureCode.AUTHN, reason)
