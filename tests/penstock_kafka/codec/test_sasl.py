"""SASL's mechanisms: the exchange that RFC 7677 prints, and messages that are refused."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed
from penstock_kafka.codec.sasl import PlainCredentials, ScramClient, ScramServer, plain_credentials, plain_message

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO" + NONCE.encode() + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
"""RFC 7677, section 3; the password is "pencil"."""


def exchange(*secrets: str) -> ScramServer:
    known = {"user": list(secrets)}
    return ScramServer("SCRAM-SHA-256", lambda name: known.get(name, []), lambda _: SALT, NONCE)


def test_the_exchange_of_the_rfc() -> None:
    server = exchange("pencil")
    first = b"r=rOprNGfwEbeRWgbNEkqO" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.first(FIRST) == first
    assert server.final(FINAL) == ("pencil", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_one_of_several_secrets_is_proven() -> None:
    server = exchange("old", "pencil")
    server.first(FIRST)
    assert server.final(FINAL)[0] == "pencil"


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"dHz", b"dHy"),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"r=rO", b"r=rP"),
        FINAL[:-1],
        FINAL + "é".encode(),
        b"",
        b"\xff",
    ],
)
def test_other_proofs_are_refused(final: bytes) -> None:
    server = exchange("pencil")
    server.first(FIRST)
    with pytest.raises(OperationFailed) as refused:
        server.final(final)
    assert refused.value.failure.code is FailureCode.AUTHN


def test_unknown_names_are_refused_at_the_end() -> None:
    server = exchange("pencil")
    server.first(FIRST.replace(b"user", b"other"))
    with pytest.raises(OperationFailed, match="name or secret is wrong"):
        server.final(FINAL)


@pytest.mark.parametrize("first", [b"", b"p=tls-unique,,n=user,r=x", b"n,,n=user", b"n,,r=x", b"n,a=root,n=user,r=x"])
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(OperationFailed) as refused:
        exchange("pencil").first(first)
    assert refused.value.failure.code is FailureCode.AUTHN


@given(first=st.binary(max_size=60), second=st.binary(max_size=60))
def test_any_bytes_are_answered_or_refused(first: bytes, second: bytes) -> None:
    server = exchange("pencil")
    for step in (lambda: server.first(b"n,,n=user,r=" + first), lambda: server.final(FINAL[:12] + second)):
        with contextlib.suppress(OperationFailed):
            step()
    with contextlib.suppress(OperationFailed):
        plain_credentials(first)


def test_plain() -> None:
    assert plain_credentials(b"\0name\0secret") == PlainCredentials("name", "secret")
    assert plain_credentials(b"name\0name\0secret") == PlainCredentials("name", "secret")
    for message in (b"", b"\0name\0", b"\0\0secret", b"root\0name\0secret", b"\0n\0s\0x", b"\0\xff\0secret"):
        with pytest.raises(OperationFailed):
            plain_credentials(message)


# ---- the client's side -----------------------------------------------------------------------------------------------

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={CLIENT_NONCE}{NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def test_the_client_of_the_rfc() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    assert client.first() == FIRST
    assert client.final(SERVER_FIRST) == FINAL
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    for answer in (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", b"", b"e=other-error"):
        with pytest.raises(OperationFailed, match="has not proven"):
            client.check(answer)


@pytest.mark.parametrize(
    "answer",
    [
        SERVER_FIRST.replace(b"r=rO", b"r=rP"),
        f"r={CLIENT_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        SERVER_FIRST.replace(b"4096", b"1"),
        SERVER_FIRST.replace(b"4096", b"100001"),
        SERVER_FIRST.replace(b"4096", b"9" * 5000),
        SERVER_FIRST.replace(b"==", b""),
        SERVER_FIRST.partition(b",i=")[0],
        b"\xff",
    ],
)
def test_a_server_that_weakens_the_exchange_is_refused(answer: bytes) -> None:
    with pytest.raises(OperationFailed) as refused:
        ScramClient("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE).final(answer)
    assert refused.value.failure.code is FailureCode.AUTHN


@given(st.text(min_size=1), st.text(min_size=1), st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]))
def test_both_sides_agree(name: str, secret: str, mechanism: str) -> None:
    client = ScramClient(mechanism, name, secret, "c")
    server = ScramServer(mechanism, lambda known: [secret] if known == name else [], lambda _: SALT, "s")
    proven, answer = server.final(client.final(server.first(client.first())))
    client.check(answer)
    assert proven == secret


def test_plain_is_what_the_server_reads() -> None:
    assert plain_credentials(plain_message("a", "b")) == PlainCredentials("a", "b")
