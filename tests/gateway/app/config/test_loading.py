"""Bad configurations are refused with the place and the fault; good ones arrive typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.app.config import ConfigError, load_config, parse_config, view_of
from penstock_pravega.controller.config import segment_listener_of

S2 = "[listeners.s2]\n"
SEGMENT = "[listeners.segment]\n"
FAR = S2 + "[backs.far]\nkind = 's2'\naddress = 'a:1'\n"
PRAVEGA = S2 + "[backs.far]\nkind = 'segment'\n"
KEPT = S2 + "[backs.far]\nkind = 'segment'\naddress = 'a:1'\nstate_stream = 'scope/state'\n"
STATE = S2 + "[backs.far]\nkind = 'kafka'\naddress = 'a:1'\nstate_topic = 'state'\n"
TO_FAR = "[[routes]]\nname = 'x'\nback = 'far'\n"
ROUTE = FAR + "[[routes]]\nname = 'x'\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "nonsense = 1",
            "at nonsense: unknown key; the keys here are listeners,",
        ),
        ("workers = 2\n" + S2, "at workers: this key no longer exists; a gateway is one process: docs/scaling.md"),
        (S2 + "bnid = 'x'", "at listeners.s2.bnid: unknown key; did you mean bind?"),
        (S2 + "proxy_protocol = true", "proxy_protocol needs proxies"),
        (S2 + "proxies = ['10.0.0.0/8']", "proxies needs proxy_protocol or forwarded_for"),
        (S2 + "proxies = ['10.0.0.1/8']\nproxy_protocol = true", "10.0.0.1/8 has host bits set"),
        (
            "[listeners.s3p]\nproxies = ['10.0.0.0/8']\nforwarded_for = true",
            "forwarded_for is for listeners that speak HTTP",
        ),
        (S2 + "[listeners.s3]", "at listeners.s3: unknown key; did you mean s3p?"),
        (S2 + "[listeners.s2.limits]\nmax_conections = 1", "did you mean max_connections?"),
        (
            S2 + "[[store.basins]]\nname = 'penstock'\n[[store.basins]]\nnam = 'x'",
            "at store.basins[1].nam: unknown key",
        ),
        (S2 + "[[store.basins]]", "at store.basins[0]: missing key `name`"),
        ("listeners = 3", "at listeners: expected a table, got a whole number"),
        (S2 + "[store]\nbasins = 3", "at store.basins: expected an array of tables ([[store.basins]])"),
        (S2 + "compress = 1", "at listeners.s2.compress: expected true or false, got a whole number"),
        (S2 + "cors_origins = ['app.example']", "at listeners.s2.cors_origins[0]: expected a string that matches"),
        (S2 + "cors_origins = ['https://a.example/']", "at listeners.s2.cors_origins[0]: expected a string that"),
        (S2 + "cors_origins = ['null']", "at listeners.s2.cors_origins[0]: expected a string that matches"),
        (S2 + "hosts = ['gw:8080']", "at listeners.s2.hosts[0]: expected a string that matches"),
        (S2 + "hosts = ['a.*.example']", "at listeners.s2.hosts[0]: expected a string that matches"),
        (S2 + "bind = 8080", "at listeners.s2.bind: expected a string, got a whole number"),
        (S2 + "auth_tokens = ['a', 1]", "at listeners.s2.auth_tokens[1]: expected a string, got a whole number"),
        (S2 + "auth_tokens = ['']", "at listeners.s2.auth_tokens[0]: expected a string that matches '^[!-~]+"),
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
            "at store: basin penstock is defined twice",
        ),
        (
            "[listeners.controller]",
            "at listeners: [listeners.controller] needs [listeners.segment], to which it sends its clients",
        ),
        (SEGMENT + "[listeners.controller]\nadvertise = 'host'", "at listeners.controller: advertise: expected HOST"),
        (SEGMENT + "[listeners.controller]\nadvertise = 'host:0'", "clients cannot connect to port 0, got 'host:0'"),
        (SEGMENT + "[listeners.controller]\ntls_key = 'k'", "at listeners.controller: tls_certificate and tls_key go"),
        (SEGMENT + "[listeners.controller]\nsegments = 'one'", "expected one of 'separate', 'single', 'refuse'"),
        (SEGMENT + "tls_key = 'k'", "at listeners.segment: tls_certificate and tls_key go together"),
        (SEGMENT + "basin = 'x'", "at listeners.segment: basin: basin name must be"),
        (SEGMENT + "[listeners.segment.loss]\nheaders = 'keep'", "expected one of 'refuse', 'envelope', 'drop'"),
        (SEGMENT + "[listeners.segment.limits]\nread_hold_seconds = 0", "expected a number >= 1"),
        (
            "[[listeners.s2]]\n[[listeners.s2]]",
            "at listeners: there are several listeners s2: give each a name of its own",
        ),
        ("[[listeners.s2]]\nname = 'A b'", "at listeners.s2[0].name: expected a string that matches"),
        ("[[listeners.s2]]\n[[listeners.s2]]\nname = 'b'\nbnid = 1", "at listeners.s2[1].bnid: unknown key"),
        (
            SEGMENT + "[listeners.controller]\nsegment_listener = 'x'",
            "segment_listener: there is no segment listener 'x'",
        ),
        (S2 + "backs = 3", "at listeners.s2.backs: unknown key"),
        (S2 + "[backs]\nfar = 3", "at backs.far: expected a table, got a whole number"),
        (
            S2 + "[backs.far]\naddress = 'a:1'",
            "at backs.far: missing key `kind`, one of 'durable', 'kafka', 's2', 's2-sse'",
        ),
        (
            S2 + "[backs.far]\nkind = 's4'",
            "at backs.far.kind: expected one of 'durable', 'kafka', 's2', 's2-sse', 's3p', 'segment', got 's4'",
        ),
        (
            FAR + "exclusive = true",
            "at backs.far.exclusive: a back of kind 's2' has no such key; those of kind durable, s3p",
        ),
        (S2 + "[backs.far]\ntype = 's2'\naddress = 'a:1'", "'s3p', 'segment'; write it instead of `type`"),
        (S2 + "[backs.far]\nkind = 's2'\nurl = 'a:1'", "at backs.far.url: unknown key; did you mean address?"),
        (
            FAR.replace("a:1", "https://a:1/x"),
            "at backs.far: address: expected HOST:PORT instead of a URL: write a:1, and tls = true, got 'https://a:1/x'",
        ),
        (FAR + "compresion = 'zstd'", "at backs.far.compresion: unknown key; did you mean compression?"),
        (
            FAR + "delivery = 'twice'",
            "at backs.far.delivery: expected one of 'exactly-once', 'at-least-once', 'refuse'",
        ),
        (
            S2 + "[backs.far]\nkind = 's3p'\naddress = 'a:1'\ndelivery = 'exactly-once'",
            "expected one of 'at-least-once'",
        ),
        (S2 + "[backs.far]\nkind = 's2'", "at backs.far: missing key `address`"),
        (S2 + "[backs.far]\nkind = 's2'\naddress = 'a'", "at backs.far: address: expected HOST:PORT"),
        (FAR + "tls_ca = 'x'", "at backs.far: tls_ca is for TLS: set tls = true, or remove it"),
        (FAR + "tls = true\ntls_key = 'x'", "at backs.far: tls_certificate and tls_key go together"),
        (FAR + "credentials = 'static'\ntoken = \"secret\\n\"", "at backs.far.token: expected a string that matches"),
        (S2 + 'auth_tokens = ["secret\\n"]', "at listeners.s2.auth_tokens[0]: expected a string that matches"),
        (
            S2 + "[backs.far]\nkind = 's2'\naddress = 'far:0'",
            "at backs.far: address: a server cannot listen on port 0, got 'far:0'",
        ),
        (PRAVEGA + "controller = 'far:0'", "at backs.far: controller: a server cannot listen on port 0, got 'far:0'"),
        (
            S2 + "[backs.far]\nkind = 's3p'\naddress = 'far/x:1'",
            "at backs.far: address: 'far/x' is not a host name or address",
        ),
        (
            FAR + 'basin_style = "host"\nbasin_authority = "b.example\\r\\nx: y"',
            "at backs.far: basin_authority: expected HOST or HOST:PORT, got 'b.example\\r\\nx: y'",
        ),
        (FAR + "credentials = 'static'", 'at backs.far: credentials = "static" needs token or token_file'),
        (FAR + "credentials = 'swap'", 'at backs.far: credentials = "swap" needs tokens'),
        (FAR + "token = 'x'", 'token and token_file are for credentials = "static" or "swap", not "none"'),
        (FAR + "credentials = 'swap'\ntoken = 'x'\ntoken_file = 'y'", "token and token_file exclude each other"),
        (FAR + "[backs.far.tokens]\nx = 'y'", 'tokens are for credentials = "swap", not "none"'),
        (FAR + "credentials = 'swap'\n[backs.far.tokens]\nx = 'y'", "back far: tokens: x is unknown; there is none"),
        (FAR + "basin_authority = 'x'", 'basin_authority is for basin_style = "host"'),
        (PRAVEGA, "at backs.far: give address (of the segment store), controller, or both"),
        (PRAVEGA + "controller = 'a:1'\ndialect = 'draft'", "the draft has no controller: remove it"),
        (PRAVEGA + "controller = 'a:1'\nusername = 'x'", "username and password_file go together"),
        (PRAVEGA + "address = 'a:1'\nusername = 'x'\npassword_file = 'y'", "username is for the controller"),
        (
            PRAVEGA + "address = 'a:1'\n[backs.far.loss]\nempty_body = 'drop'",
            "expected one of 'refuse', 'envelope', 'keep'",
        ),
        (
            S2 + "[backs.far]\nkind = 'durable'\naddress = 'a:1'\nloss.headers = 'envelope'",
            "at backs.far.loss.headers: expected one of 'refuse', 'drop', got 'envelope'",
        ),
        (
            S2 + "[backs.embedded]\nkind = 's2'\naddress = 'a:1'",
            "the name is reserved for the embedded store",
        ),
        (
            STATE + "[[routes]]\nname = 'x'\nback = 'embedded'",
            "route x: back far keeps the gateway's state, so there is no",
        ),
        (STATE, "back far keeps the gateway's state, so there is no embedded store: give [[routes]]"),
        (STATE + TO_FAR + "[[store.basins]]\nname = 'basin-one'", "store.basins: back far keeps the gateway's state"),
        (
            STATE + TO_FAR + "[backs.near]\nkind = 'kafka'\naddress = 'b:1'\nstate_topic = 's'",
            "backs far and near: one of them can keep the gateway's state, not both",
        ),
        (STATE.replace("'state'", "'a/b'"), "state_topic: 'a/b' is not the name of a topic"),
        (KEPT + "exclusive = true\n" + TO_FAR, "back far: exclusive: an append of a gateway that was killed may come"),
        (KEPT + "dialect = 'draft'\n" + TO_FAR, "state_stream: the draft has no conditional appends"),
        (KEPT.replace("scope/state", "state") + TO_FAR, "state_stream: 'state' is not SCOPE/STREAM"),
        (KEPT.replace("scope/state", "scope/_state") + TO_FAR, "state_stream: 'scope/_state' is not SCOPE/STREAM"),
        (KEPT.replace("scope/state", "s c/state") + TO_FAR, "state_stream: a scope"),
        (S2 + "[backs.'a b']\nkind = 's2'\naddress = 'a:1'", "[backs]: 'a b' is not a name"),
        (ROUTE + "back = 'fra'", "route x: back: fra is unknown; did you mean far?"),
        (ROUTE + "mirror = 'y'", "route x: mirror: y is unknown; there is embedded, far"),
        (ROUTE + "mirror = 'embedded'", "at routes[0]: mirror: embedded is the route's own back"),
        (ROUTE + "listeners = ['s3p']", "route x: listeners: s3p is unknown; there is s2"),
        (ROUTE + "identity = ['y']", "route x: identity: y is unknown; there is none"),
        (ROUTE + "[[routes]]\nname = 'x'", "route x is defined twice: give each a name of its own"),
        (ROUTE + "[[routes]]", "at routes[1]: missing key `name`"),
        (ROUTE + "match = 'regex'\nstream = '('", "at routes[0]: '(' is not a regular expression"),
        (ROUTE + "to_stream = '{1}'", "at routes[0]: to_stream: nothing captures {1}"),
        (ROUTE + "to_basin = 'x'", "at routes[0]: to_basin: basin name must be"),
        (
            S2 + "[listeners.s3p]\n[backs.far]\nkind = 's2-sse'\naddress = 'a:1'\n[[routes]]\nname = 'x'\nback = 'far'",
            "route x: clients of S3P cannot read from far, since a back of kind s2-sse has no identifiers",
        ),
        (
            S2 + "[backs.far]\nkind = 's2-sse'\naddress = 'a:1'\n[[routes]]\nname = 'x'\nmirror = 'far'",
            "route x: mirror: far is of kind s2-sse, to which nothing can be appended",
        ),
        (S2 + "[[identities]]\nname = ''", "at identities[0]: name: an identity needs a name"),
        (
            S2 + "[[identities]]\nname = 'x'\naddresses = ['10.0.0.1/8']",
            "at identities[0]: addresses: 10.0.0.1/8 has host",
        ),
        (
            S2 + "[[identities]]\nname = 'x'\ntokens = ['a b']",
            "at identities[0].tokens[0]: expected a string that matches",
        ),
        ("", "there is nothing to run"),
        ("[", "is not TOML: "),
        pytest.param("x = " + "[" * 5000, "nested too deeply", id="deep"),
        pytest.param("x = " + "1" * 5000, "is not TOML: ", id="long"),
        pytest.param("a." * 5000 + "b = 1", "unknown key", id="dotted"),
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
        parse_config(S2 + "compress = 1\nbnid = 2\n[log]\nlevel = 'loud'")
    assert len(caught.value.problems) == 3


def test_values_arrive_typed() -> None:
    config = parse_config(S2 + "bind = '[::1]:0'\nauth_tokens = ['a']\n[drain]\ndeadline_seconds = 3")
    assert len(config.listeners.s2) == 1
    assert config.listeners.s2[0].auth_tokens == ("a",)
    assert config.listeners.s3p == (), "a listener that is left out is off"
    assert config.drain.deadline_seconds == 3.0


def test_several_listeners_of_a_kind() -> None:
    text = (
        "[[listeners.s2]]\n[[listeners.s2]]\nname = 'outer'\n[[listeners.segment]]\nname = 'a'\n[[listeners.segment]]\n"
    )
    text += "name = 'b'\n[[listeners.controller]]\n[[listeners.controller]]\nname = 'of-b'\nsegment_listener = 'b'\n"
    config = parse_config(text)
    labels = [label for label, _ in config.listeners.labelled()]
    assert labels == ["s2", "s2.outer", "segment.a", "segment.b", "controller", "controller.of-b"]
    found = [segment_listener_of(one, view_of(config)) for one in config.listeners.controller]
    assert [label for label, _ in found] == ["segment.a", "segment.b"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.toml: is not UTF-8 text"):
        load_config(tmp_path / "latin.toml")


def test_all_unknown_names_are_reported_in_one_pass() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(ROUTE + "back = 'y'\nlisteners = ['z']\n[[faults]]\nname = 'f'\naction = 'cut'\nroutes = ['w']")
    assert caught.value.problems == [
        "route x: back: y is unknown; there is embedded, far",
        "route x: listeners: z is unknown; there is s2",
        "fault f: routes: w is unknown; there is x",
    ]
