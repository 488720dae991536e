"""Addresses and options as text: their meaning, and every error by name."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.spark.gateways import serve_command

from penstock.wire.compression import Compression
from penstock_spark.clients.endpoint import Endpoint, EndpointError, is_server, parse_endpoint


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("http://gateway", {}, Endpoint("gateway", 80)),
        ("https://gateway:8443/", {}, Endpoint("gateway", 8443, tls=True)),
        ("127.0.0.1:8080", {}, Endpoint("127.0.0.1", 8080)),
        ("[::1]:9", {}, Endpoint("::1", 9)),
        (" https://{basin}.b.example.com ", {}, Endpoint("{basin}.b.example.com", 443, tls=True)),
        (
            "http://h",
            {"compression": "ZSTD", "connect_seconds": "0.5", "request_seconds": "7", "recover_seconds": "0", "x": "y"},
            Endpoint("h", 80, False, None, None, None, "", 0.5, 7.0, 0.0, Compression.ZSTD),
        ),
    ],
)
def test_what_addresses_mean(text: str, options: dict[str, str], expected: Endpoint) -> None:
    assert parse_endpoint(text, options) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    ("text", "options", "faults"),
    [
        ("", {}, ["endpoint: an address is missing"]),
        ("ftp://h", {}, ["endpoint: ftp:// is neither http:// nor https://"]),
        ("http://", {}, ["'http://' names no host"]),
        ("http://h:0", {}, ["the port must be from 1 to 65535"]),
        ("http://h:x", {}, ["'http://h:x' is no address"]),
        ("http://h:65536", {}, ["is no address"]),
        ("http://h/v1", {}, ["'/v1' behind the host"]),
        ("http://me:secret@h", {}, ["a token goes into option `token_file`"]),
        ("http://a b", {}, ["'a b' is no host"]),
        ("http://x.{basin}.h", {}, ["'x.{basin}.h' is no host"]),
        ("https://h", {"ca_file": "/nowhere/ca.pem"}, ["ca_file: cannot read /nowhere/ca.pem: No such file"]),
        ("http://h", {"ca_file": __file__}, ["ca_file: the endpoint is without TLS"]),
        ("https://h", {"key_file": __file__}, ["key_file: a key without certificate_file"]),
        ("http://h", {"token_file": "/nowhere/t"}, ["token_file: cannot read /nowhere/t"]),
        ("http://h", {"token_variable": "PENSTOCK_TEST_UNSET"}, ["token_variable: no token"]),
        ("http://h", {"token": "a\nb"}, ["token: no token, or one with characters that a header cannot have"]),
        ("http://h", {"token": "a", "token_file": __file__}, ["token and token_file: only one of them"]),
        (
            "ftp://h",
            {"compression": "lz4", "connect_seconds": "soon", "request_seconds": "0", "recover_seconds": "nan"},
            ["ftp://", "compression: 'lz4'", "connect_seconds: 'soon'", "request_seconds: '0'", "recover_seconds"],
        ),
    ],
)
def test_every_fault_is_named(text: str, options: dict[str, str], faults: list[str]) -> None:
    with pytest.raises(EndpointError) as raised:
        parse_endpoint(text, options)
    assert len(raised.value.faults) == len(faults)
    for fault, expected in zip(raised.value.faults, faults, strict=True):
        assert expected in fault


OTHERS = {
    **dict.fromkeys(("s3p", "s3ps"), "s3p"),
    **dict.fromkeys(("segment", "segments", "pravega", "pravegas"), "segment"),
    **dict.fromkeys(("durable", "durables"), "durable"),
    "kafka": "kafka",
}
"""Schemes of servers of other protocols, and the kind of the gateway's back."""


@pytest.mark.parametrize("scheme", OTHERS)
def test_a_server_of_another_protocol_is_refused_with_the_command_of_a_gateway(scheme: str) -> None:
    with pytest.raises(EndpointError) as raised:
        parse_endpoint(f"{scheme}://127.0.0.1:7500")
    (fault,) = raised.value.faults
    assert fault == (
        f"endpoint: {scheme}:// is reached through a gateway: run `{serve_command(OTHERS[scheme])}` with that server's "
        "address in the file, and use the gateway's endpoint, http://127.0.0.1:8080"
    )


def test_a_server_that_is_refused_is_no_path() -> None:
    """Else a view of its stream would be looked for among the recordings."""
    schemes = ("http", "https", *OTHERS, "hdfs", "s3a")
    assert [scheme for scheme in schemes if not is_server(scheme)] == ["hdfs", "s3a"]


@pytest.mark.parametrize(
    "text",
    [
        "http://me:s3cret@h:x",
        "http://me:s3cret@",
        "h:1/?token=s3cret",
        "h:1/#s3cret",
        "http://me:s3cret@[h",
        "me:s3cret@h:x",
        "http://me:s3cret/x@h",
        "http://me:12/s3cret@h",
    ],
)
def test_what_may_be_a_secret_in_a_wrong_address_is_not_shown(text: str) -> None:
    with pytest.raises(EndpointError) as raised:
        parse_endpoint(text)
    assert "s3cret" not in str(raised.value)


def test_tokens_come_from_files_and_variables_and_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    monkeypatch.setenv("PENSTOCK_TEST_TOKEN", "s3cret")
    for options in ({"token_file": str(file)}, {"token_variable": "PENSTOCK_TEST_TOKEN"}, {"token": "s3cret"}):
        endpoint = parse_endpoint("http://h", options)
        assert endpoint.token == "s3cret"
        assert "s3cret" not in repr(endpoint) + str(endpoint)
    with pytest.raises(EndpointError) as raised:
        parse_endpoint("http://h", {"token": "s3cret and more"})
    assert "s3cret" not in str(raised.value)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(EndpointError, match="it is not text"):
        parse_endpoint("http://h", {"token_file": str(file)})


def test_an_endpoint_says_its_address() -> None:
    for text in ("http://h:1", "https://[::1]:2"):
        assert str(parse_endpoint(text)) == text
