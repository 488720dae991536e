"""Bad configurations are refused with the place and the fault; good ones arrive typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load_config, parse_config

S2 = "[listeners.s2]\n"
SEGMENT = "[listeners.segment]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "nonsense = 1",
            "at nonsense: unknown key; the keys here are listeners, backs, routes,",
        ),
        (S2 + "bnid = 'x'", "at listeners.s2.bnid: unknown key; did you mean bind?"),
        (S2 + "[listeners.s3]", "at listeners.s3: unknown key; did you mean s3p?"),
        (S2 + "[listeners.s2.limits]\nmax_conections = 1", "did you mean max_connections?"),
        (
            S2 + "[[store.basins]]\nname = 'penstock'\n[[store.basins]]\nnam = 'x'",
            "at store.basins[1].nam: unknown key",
        ),
        (S2 + "[[store.basins]]", "at store.basins[0]: missing key `name`"),
        ("listeners = 3", "at listeners: expected a table, got a whole number"),
        (S2 + "[store]\nbasins = 3", "at store.basins: expected an array of tables ([[store.basins]])"),
        (S2 + "cors = 1", "at listeners.s2.cors: expected true or false, got a whole number"),
        (S2 + "bind = 8080", "at listeners.s2.bind: expected a string, got a whole number"),
        (S2 + "auth_tokens = ['a', 1]", "at listeners.s2.auth_tokens[1]: expected a string, got a whole number"),
        (S2 + "auth_tokens = ['']", "at listeners.s2.auth_tokens[0]: expected a string that matches '^[!-~]+$'"),
        (S2 + "basin_host_suffixes = ['x']", "at listeners.s2.basin_host_suffixes[0]: expected a string that matches"),
        (S2 + "sse_dialect = 's3'", "at listeners.s2.sse_dialect: expected one of 's2', 'seed', got 's3'"),
        (S2 + "[listeners.s2.limits]\nmax_connections = 0", "at listeners.s2.limits.max_connections: expected a whole"),
        (S2 + "[drain]\ndeadline_seconds = -1", "at drain.deadline_seconds: expected a number >= 0"),
        (S2 + "bind = 'localhost'", "at listeners.s2: bind: expected HOST:PORT"),
        (S2 + "bind = '::1:8080'", "at listeners.s2: bind: an IPv6 address goes in brackets"),
        (S2 + "bind = '127.0.0.1:65536'", "at listeners.s2: bind: expected a port from 0 to 65535"),
        (S2 + "tls_key = 'k.pem'", "at listeners.s2: tls_certificate and tls_key go together"),
        (S2 + "[[store.basins]]\nname = 'x'", "at store.basins[0]: name: "),
        (
            S2 + "[[store.basins]]\nname = 'penstock'\n[[store.basins]]\nname = 'penstock'",
            "at store: basin penstock stands",
        ),
        (
            "[listeners.controller]",
            "at listeners: [listeners.controller] needs [listeners.segment], which is where it sends its clients",
        ),
        (SEGMENT + "[listeners.controller]\nadvertise = 'host'", "at listeners.controller: advertise: expected HOST"),
        (SEGMENT + "[listeners.controller]\nadvertise = 'host:0'", "clients cannot connect to port 0, got 'host:0'"),
        (SEGMENT + "[listeners.controller]\ntls_key = 'k'", "at listeners.controller: tls_certificate and tls_key go"),
        (SEGMENT + "[listeners.controller]\nsegments = 'one'", "expected one of 'separate', 'single', 'refuse'"),
        (SEGMENT + "tls_key = 'k'", "at listeners.segment: tls_certificate and tls_key go together"),
        (SEGMENT + "basin = 'x'", "at listeners.segment: basin: basin name must be"),
        (SEGMENT + "[listeners.segment.loss]\nheaders = 'keep'", "expected one of 'refuse', 'envelope', 'drop'"),
        (SEGMENT + "[listeners.segment.limits]\nread_hold_seconds = 0", "expected a number >= 1"),
        ("", "there is nothing to run"),
        ("[", "is not TOML: "),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "gateway.toml")
    assert len(caught.value.problems) == 1
    assert problem in str(caught.value)
    assert str(caught.value).startswith("gateway.toml: ")


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(S2 + "cors = 1\nbnid = 2\n[log]\nlevel = 'loud'")
    assert len(caught.value.problems) == 3


def test_values_arrive_typed() -> None:
    config = parse_config(S2 + "bind = '[::1]:0'\nauth_tokens = ['a']\n[drain]\ndeadline_seconds = 3")
    assert len(config.listeners.s2) == 1
    assert config.listeners.s2[0].auth_tokens == ("a",)
    assert config.listeners.s3p == (), "a listener that is left out is off"
    assert config.drain.deadline_seconds == 3.0


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.toml: is not UTF-8 text"):
        load_config(tmp_path / "latin.toml")
