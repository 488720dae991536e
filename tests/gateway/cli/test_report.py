"""The report of `penstock check` about Pravega's listeners."""

from __future__ import annotations

import pytest

from penstock.app.config import parse_config
from penstock.app.report import report
from penstock.routing.access.passwords import hash_password

SEGMENT = "[listeners.segment]\n"
CONTROLLER = SEGMENT + "[listeners.controller]\n"
S2 = "[listeners.s2]\n"
ANA = f"[[identities]]\nname = 'a'\nusername = 'ana'\npassword_hash = '{hash_password('p')}'"
GUARDED = SEGMENT + "delegation_tokens = true\n[listeners.controller]\n" + ANA
FILES = "tls_certificate = 'c.pem'\ntls_key = 'k.pem'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SEGMENT, "Segments (Pravega's protocol, wire versions 5 to 16, and the draft) by TCP on 127.0.0.1:12345"),
        (SEGMENT, "Pravega's controller: off"),
        (SEGMENT, "streams of other scopes are in basin penstock, as scope/stream"),
        (SEGMENT, "records with headers: refused: the read fails"),
        (SEGMENT, "records with an empty body: dropped"),
        (SEGMENT, "command records (fence, trim): dropped"),
        (SEGMENT + "[listeners.segment.loss]\nheaders = 'drop'", "records with headers: the headers are dropped"),
        (SEGMENT + "[listeners.segment.loss]\nempty_body = 'envelope'", "records with an empty body: carried whole"),
        (SEGMENT + FILES, "by TLS on 127.0.0.1:12345"),
        ("[listeners.s3p]", "Segments: off"),
        (CONTROLLER, "Pravega's controller (gRPC by HTTP/2, REST) on 127.0.0.1:9090"),
        (CONTROLLER + FILES, "Pravega's controller (gRPC by HTTPS/2, REST) on 127.0.0.1:9090"),
        (CONTROLLER + FILES, "only one of them has TLS"),
        (CONTROLLER, "sends its clients to the segment listener, on the host by which they reached the controller"),
        (CONTROLLER + "advertise = 'gateway.example:1'", "sends its clients to gateway.example:1"),
        (CONTROLLER, "several segments: each segment is a stream of its own"),
        (CONTROLLER + "segments = 'single'", "several segments: it has only one segment"),
        (SEGMENT + "[management]\nenabled = false", "Management: off"),
        (SEGMENT, "HTTP) on 127.0.0.1:9600, for any client, without a token"),
        (SEGMENT + "[management]\nauth_tokens = ['a', 'b']", "for clients with one of 2 bearer tokens"),
        (
            SEGMENT + "[management]\nbind = '0.0.0.0:9600'",
            "INSECURE: management: every client that reaches 0.0.0.0:9600",
        ),
        (SEGMENT + "[management]\nbind = '0.0.0.0:9600'", "cut routes over, and clients need not authenticate"),
        (CONTROLLER + "segments = 'refuse'", "several segments: it is not created"),
        (S2 + "auth_tokens = ['t']\n[access]", "S2 clients: clients with one of 1 bearer tokens or an access token"),
        (S2 + "anonymous = true\n[access]", "S2 clients: any client without a token, and clients with an access token"),
        (S2 + "[access]\nfile = 'tokens'", "access tokens are in tokens, as hashes"),
        (
            SEGMENT + "delegation_tokens = true",
            "for the password of an identity with a username, but none is configured",
        ),
        (
            SEGMENT + "delegation_tokens = true",
            "valid for 600 s, which its controllers issue for the password of an identity",
        ),
        (SEGMENT + "delegation_tokens = true\n" + ANA, "issue for the password of ana"),
        (SEGMENT + "delegation_tokens = true\n" + ANA, "Clients of segments: clients with a delegation token"),
        (GUARDED, "(gRPC by HTTP/2, REST) on 127.0.0.1:9090, for clients with a user name and password"),
        (CONTROLLER, "(gRPC by HTTP/2, REST) on 127.0.0.1:9090, for any client"),
    ],
)
def test_what_is_said(text: str, said: str) -> None:
    assert said in " ".join(report(parse_config(text), "a file").split())


@pytest.mark.parametrize(
    ("allowed", "said", "kept_quiet"),
    [
        ('allow = ["read"]', ["reads, kept"], ["appends, kept"]),
        ('allow = ["append"]', ["appends, kept", "guarantee"], ["reads, kept"]),
        ("", ["appends, kept", "reads, kept", "guarantee"], []),
    ],
)
def test_what_a_route_refuses_is_not_explained(allowed: str, said: list[str], kept_quiet: list[str]) -> None:
    told = report(parse_config(f"{S2}[[routes]]\nname = 'a'\n{allowed}"), "a file")
    assert all(text in told for text in said), told
    assert not any(text in told for text in kept_quiet), told


def test_what_is_off_is_not_explained() -> None:
    told = report(parse_config("[listeners.s3p]"), "a file")
    assert "Records that Segments cannot carry" not in told
    assert "scope" not in told
