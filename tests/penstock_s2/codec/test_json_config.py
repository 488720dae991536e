"""Basins and streams as JSON (S2 fact sheet, 1.3 "Shapes")."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.operations import Page
from penstock.model.records import U64_MAX, StreamRef
from penstock.model.streams import (
    DEFAULT_STREAM_CONFIG,
    INFINITE,
    BasinConfig,
    BasinConfigPatch,
    BasinInfo,
    Cipher,
    Retention,
    StreamConfig,
    StreamConfigPatch,
    StreamInfo,
    TimestampingMode,
)
from penstock_s2.codec import json_config as spelled
from penstock_s2.codec import json_config_client as client

C = FailureCode
HERE = "here:now"
create_basin = partial(spelled.decode_create_basin, location=HERE)
FULL = {
    "storage_class": "standard",
    "retention_policy": {"age": 60},
    "timestamping": {"mode": "client-require", "uncapped": True},
    "delete_on_empty": {"min_age_secs": 3600},
}
FULL_CONFIG = StreamConfig(
    storage_class="standard",
    retention=Retention(60),
    timestamping_mode=TimestampingMode.CLIENT_REQUIRE,
    timestamping_uncapped=True,
    delete_on_empty_seconds=3600,
)
PARTS: list[tuple[dict[str, Any], StreamConfig]] = [
    ({}, StreamConfig()),
    (dict.fromkeys(FULL), StreamConfig()),
    ({"storage_class": "express"}, StreamConfig(storage_class="express")),
    ({"storage_class": "gold"}, StreamConfig(storage_class="gold")),
    ({"retention_policy": {"infinite": {}}}, StreamConfig(retention=INFINITE)),
    ({"retention_policy": {"age": U64_MAX}}, StreamConfig(retention=Retention(U64_MAX))),
    ({"timestamping": {}}, StreamConfig()),
    ({"timestamping": {"mode": None, "uncapped": None}}, StreamConfig()),
    ({"timestamping": {"mode": "arrival"}}, StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL)),
    ({"timestamping": {"uncapped": False}}, StreamConfig(timestamping_uncapped=False)),
    ({"delete_on_empty": {}}, StreamConfig()),
    ({"delete_on_empty": {"min_age_secs": 0}}, StreamConfig(delete_on_empty_seconds=0)),
    (FULL, FULL_CONFIG),
    ({**FULL, "unknown": 1}, FULL_CONFIG),
]


def dump(content: Any) -> bytes:
    return json.dumps(content).encode()


def code_of(decode: Callable[[], Any]) -> FailureCode:
    with pytest.raises(OperationFailed) as caught:
        decode()
    return caught.value.failure.code


# ---- stream configurations in requests ---------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "config"), PARTS)
def test_stream_configuration_wherever_it_stands(content: dict[str, Any], config: StreamConfig) -> None:
    ref = StreamRef("basin-name", "a/b")
    assert spelled.decode_ensure_stream(dump(content)) == config
    assert spelled.decode_create_stream(dump({"stream": "a/b", "config": content}), "basin-name") == (ref, config)
    assert spelled.decode_stream_config_header(json.dumps(content)) == config
    basin = spelled.decode_ensure_basin(dump({"config": {"default_stream_config": content}}), HERE)
    assert basin.default_stream_config == config


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"storage_class": "x" * 65}, C.BAD_JSON),
        ({"storage_class": 1}, C.BAD_JSON),
        ({"retention_policy": {"age": 0}}, C.INVALID),
        ({"retention_policy": {"age": -1}}, C.BAD_JSON),
        ({"retention_policy": {"age": 1.5}}, C.BAD_JSON),
        ({"retention_policy": {"age": None}}, C.BAD_JSON),
        ({"retention_policy": {"age": U64_MAX + 1}}, C.BAD_JSON),
        ({"retention_policy": {"infinite": None}}, C.BAD_JSON),
        ({"retention_policy": {}}, C.BAD_JSON),
        ({"retention_policy": {"age": 1, "infinite": {}}}, C.BAD_JSON),
        ({"retention_policy": 60}, C.BAD_JSON),
        ({"timestamping": {"mode": "client_prefer"}}, C.BAD_JSON),
        ({"timestamping": {"uncapped": 1}}, C.BAD_JSON),
        ({"timestamping": "arrival"}, C.BAD_JSON),
        ({"delete_on_empty": {"min_age_secs": -1}}, C.BAD_JSON),
        ({"delete_on_empty": {"min_age_secs": U64_MAX + 1}}, C.BAD_JSON),
        ([], C.BAD_JSON),
        ("x", C.BAD_JSON),
    ],
)
def test_bad_stream_configuration(content: Any, code: FailureCode) -> None:
    body = dump(content)
    assert code_of(lambda: spelled.decode_ensure_stream(body)) is code
    assert code_of(lambda: spelled.decode_stream_patch(body)) is code
    assert code_of(lambda: spelled.decode_create_stream(dump({"stream": "s", "config": content}), "b")) is code
    assert code_of(lambda: spelled.decode_stream_config_header(body.decode())) is C.BAD_HEADER
    basin = {"default_stream_config": content}
    assert code_of(lambda: spelled.decode_basin_patch(dump(basin))) is code
    assert code_of(lambda: spelled.decode_create_basin(dump({"basin": "basin-name", "config": basin}), HERE)) is code


@pytest.mark.parametrize("value", ["{bad", "", "null", "[]", "{} x", "{\u20ac}", '{"storage_class":"\xff"}'])
def test_unparsable_header(value: str) -> None:
    with pytest.raises(OperationFailed, match="Invalid header `s2-stream-config`: ") as caught:
        spelled.decode_stream_config_header(value)
    assert caught.value.failure.code is C.BAD_HEADER


def test_nothing_at_all_is_the_defaults_for_ensure_only() -> None:
    assert spelled.decode_ensure_stream(b"") == StreamConfig()
    assert spelled.decode_ensure_basin(b"", HERE) == BasinConfig()
    for decode in (spelled.decode_stream_patch, spelled.decode_basin_patch, create_basin):
        assert code_of(lambda decode=decode: decode(b"")) is C.BAD_JSON  # type: ignore[misc]
    for decode in (*DECODERS.values(), spelled.decode_ensure_stream):
        for body in (b"null", b"[]"):
            assert code_of(lambda decode=decode, body=body: decode(body)) is C.BAD_JSON  # type: ignore[misc]


DECODERS = {
    "stream": spelled.decode_stream_patch,
    "basin": spelled.decode_basin_patch,
    "create a basin": lambda body: spelled.decode_create_basin(body, HERE),
    "create a stream": lambda body: spelled.decode_create_stream(body, "basin-name"),
    "ensure a basin": lambda body: spelled.decode_ensure_basin(body, HERE),
}


@pytest.mark.parametrize(
    ("kind", "body", "key"),
    [
        ("stream", b'{"storage_class":"a","storage_class":"b"}', "storage_class"),
        ("stream", b'{"retention_policy":{"age":5,"\\u0061ge":6}}', "age"),
        ("basin", b'{"default_stream_config":{"timestamping":{"mode":"arrival","mode":"arrival"}}}', "mode"),
        ("create a basin", b'{"basin":"basin-one","basin":"basin-two"}', "basin"),
        ("create a stream", b'{"stream":"s","config":{},"config":{}}', "config"),
        ("ensure a basin", b'{"x":[{"y":1,"z":2,"y":1}]}', "y"),
    ],
)
def test_a_key_twice(kind: str, body: bytes, key: str) -> None:
    with pytest.raises(OperationFailed, match=f"duplicate field `{key}`") as failed:
        DECODERS[kind](body)
    assert failed.value.failure.code is C.BAD_JSON


def test_what_only_a_change_may_reset() -> None:
    """null as `min_age_secs` resets in a patch; in a configuration it is refused, as in S2."""
    nulled = b'{"delete_on_empty":{"min_age_secs":null}}'
    assert spelled.decode_stream_patch(nulled).delete_on_empty_seconds is None
    layered = b'{"default_stream_config":%b}' % nulled
    assert spelled.decode_basin_patch(layered).default_stream_config == StreamConfigPatch(delete_on_empty_seconds=None)
    for decode, body in (
        (spelled.decode_ensure_stream, nulled),
        (DECODERS["create a stream"], b'{"stream":"s","config":%b}' % nulled),
        (DECODERS["ensure a basin"], b'{"config":%b}' % layered),
    ):
        assert code_of(lambda decode=decode, body=body: decode(body)) is C.BAD_JSON  # type: ignore[misc]
    assert spelled.decode_ensure_stream(b'{"delete_on_empty":null}') == StreamConfig()


def test_a_bad_header_is_not_called_the_body() -> None:
    for value in ("{bad", "null", '{"a":1,"a":2}', '{"delete_on_empty":{"min_age_secs":null}}'):
        with pytest.raises(OperationFailed) as failed:
            spelled.decode_stream_config_header(value)
        assert failed.value.failure.code is C.BAD_HEADER
        assert failed.value.failure.message.startswith("Invalid header `s2-stream-config`: invalid JSON: ")


@pytest.mark.parametrize(
    ("location", "code"), [("", C.BAD_JSON), ("a b", C.BAD_JSON), ("x" * 65, C.BAD_JSON), ("aws:us-east-1", C.INVALID)]
)
def test_other_locations(location: str, code: C) -> None:
    assert code_of(lambda: spelled.decode_ensure_basin(dump({"location": location}), HERE)) is code


# ---- patches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "patch"),
    [
        ({}, StreamConfigPatch()),
        (
            dict.fromkeys(FULL),
            StreamConfigPatch(
                storage_class=None,
                retention=None,
                timestamping_mode=None,
                timestamping_uncapped=None,
                delete_on_empty_seconds=None,
            ),
        ),
        ({"timestamping": {}}, StreamConfigPatch()),
        ({"timestamping": {"mode": None}}, StreamConfigPatch(timestamping_mode=None)),
        ({"timestamping": {"uncapped": True}}, StreamConfigPatch(timestamping_uncapped=True)),
        ({"delete_on_empty": {}}, StreamConfigPatch()),
        ({"delete_on_empty": {"min_age_secs": None}}, StreamConfigPatch(delete_on_empty_seconds=None)),
        ({"retention_policy": {"infinite": {}}}, StreamConfigPatch(retention=INFINITE)),
    ],
)
def test_stream_patch(content: dict[str, Any], patch: StreamConfigPatch) -> None:
    assert spelled.decode_stream_patch(dump(content)) == patch
    assert spelled.decode_stream_patch(client.encode_stream_patch(patch)) == patch


def test_patch_keeps_resets_and_replaces() -> None:
    patch = spelled.decode_stream_patch(b'{"storage_class":null,"timestamping":{"mode":"arrival"}}')
    changed = patch.apply(FULL_CONFIG)
    assert changed.storage_class is None
    assert changed.timestamping_mode is TimestampingMode.ARRIVAL
    assert (changed.timestamping_uncapped, changed.retention) == (True, Retention(60))


@pytest.mark.parametrize(
    ("content", "patch"),
    [
        ({}, BasinConfigPatch()),
        ({"default_stream_config": None}, BasinConfigPatch(default_stream_config=None)),
        ({"default_stream_config": {}}, BasinConfigPatch(default_stream_config=StreamConfigPatch())),
        ({"create_stream_on_append": True}, BasinConfigPatch(create_stream_on_append=True)),
    ],
)
def test_basin_patch(content: dict[str, Any], patch: BasinConfigPatch) -> None:
    assert spelled.decode_basin_patch(dump(content)) == patch
    assert spelled.decode_basin_patch(client.encode_basin_patch(patch)) == patch


# ---- basins ------------------------------------------------------------------------------------------------------


def test_create_basin() -> None:
    body = {
        "basin": "basin-name",
        "config": {"default_stream_config": FULL, "stream_cipher": None, "create_stream_on_append": True},
        "location": None,
    }
    expected = BasinConfig(default_stream_config=FULL_CONFIG, create_stream_on_append=True)
    assert spelled.decode_create_basin(dump(body), HERE) == ("basin-name", expected)
    assert spelled.decode_create_basin(b'{"basin":"basin-name","config":null}', HERE) == ("basin-name", BasinConfig())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, C.BAD_JSON),
        ({"basin": "short"}, C.BAD_JSON),
        ({"basin": "a" * 49}, C.BAD_JSON),
        ({"basin": 12345678}, C.BAD_JSON),
        ({"basin": "basin-name", "config": []}, C.BAD_JSON),
        ({"basin": "basin-name", "location": "aws:us-east-1"}, C.INVALID),
        ({"basin": "basin-name", "config": {"stream_cipher": "rot13"}}, C.BAD_JSON),
        ({"basin": "basin-name", "config": {"create_stream_on_read": "yes"}}, C.BAD_JSON),
    ],
)
def test_bad_create_basin(body: Any, code: FailureCode) -> None:
    assert code_of(lambda: create_basin(dump(body))) is code


@pytest.mark.parametrize("cipher", ["aegis-256", "aes-256-gcm"])
def test_a_cipher_is_asked_for_in_three_places_and_answered_in_two(cipher: str) -> None:
    given, config = {"stream_cipher": cipher}, BasinConfig(stream_cipher=Cipher(cipher))
    assert spelled.decode_create_basin(dump({"basin": "basin-name", "config": given}), HERE) == ("basin-name", config)
    assert spelled.decode_ensure_basin(dump({"config": given}), HERE) == config
    patch = spelled.decode_basin_patch(dump(given))
    assert patch.apply(BasinConfig()) == config
    assert spelled.decode_basin_patch(client.encode_basin_patch(patch)) == patch
    assert client.decode_remote_basin_config(spelled.encode_basin_config(config)) == config
    info = StreamInfo(name="s", created_at=7, cipher=Cipher(cipher))
    assert json.loads(spelled.encode_stream_info(info))["cipher"] == cipher
    assert client.decode_remote_stream_info(spelled.encode_stream_info(info)) == info
    assert client.decode_remote_stream_page(spelled.encode_stream_page(Page([info], False))).items == [info]


def test_the_only_location_may_be_named() -> None:
    named = {"basin": "basin-name", "location": HERE}
    assert create_basin(dump(named)) == ("basin-name", BasinConfig())
    assert spelled.decode_ensure_basin(dump({"location": HERE}), HERE) == BasinConfig()
    with pytest.raises(OperationFailed, match="unknown location 'elsewhere': the only one here is 'here:now'"):
        spelled.decode_ensure_basin(dump({"location": "elsewhere"}), HERE)


def test_a_change_takes_a_cipher_away_or_leaves_it() -> None:
    before = BasinConfig(stream_cipher=Cipher.AEGIS_256)
    assert spelled.decode_basin_patch(b"{}").apply(before) == before
    assert spelled.decode_basin_patch(b'{"stream_cipher":null}').apply(before) == BasinConfig()


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 513, "a\0b"])
def test_bad_stream_name(name: str) -> None:
    assert code_of(lambda: spelled.decode_create_stream(dump({"stream": name}), "basin-name")) is C.BAD_JSON


# ---- answers -----------------------------------------------------------------------------------------------------


def test_resolved_configuration() -> None:
    assert json.loads(spelled.encode_stream_config(DEFAULT_STREAM_CONFIG)) == {
        "storage_class": "express",
        "retention_policy": {"age": 604800},
        "timestamping": {"mode": "client-prefer", "uncapped": False},
        "delete_on_empty": {"min_age_secs": 0},
    }
    forever = StreamConfig(retention=INFINITE).resolve()
    assert json.loads(spelled.encode_stream_config(forever))["retention_policy"] == {"infinite": {}}


def test_basin_configuration() -> None:
    assert json.loads(spelled.encode_basin_config(BasinConfig())) == {
        "default_stream_config": None,
        "stream_cipher": None,
        "create_stream_on_append": False,
        "create_stream_on_read": False,
    }
    config = BasinConfig(default_stream_config=FULL_CONFIG, create_stream_on_read=True)
    assert json.loads(spelled.encode_basin_config(config))["default_stream_config"] == FULL


def test_infos_and_pages() -> None:
    basin = BasinInfo(name="basin-name", created_at=1_700_000_000_007)
    gone = BasinInfo(name="basin-gone", created_at=0, deleted_at=1_700_000_000_000)
    assert json.loads(spelled.encode_basin_info(basin, HERE)) == {
        "name": "basin-name",
        "location": HERE,
        "created_at": "2023-11-14T22:13:20.007Z",
        "deleted_at": None,
        "state": "active",
    }
    stream = StreamInfo(name="a/b", created_at=999)
    assert json.loads(spelled.encode_stream_info(stream)) == {
        "name": "a/b",
        "created_at": "1970-01-01T00:00:00.999Z",
        "deleted_at": None,
        "cipher": None,
    }
    page = json.loads(spelled.encode_basin_page(Page([basin, gone], True), HERE))
    assert [(item["name"], item["state"]) for item in page["basins"]] == [
        ("basin-name", "active"),
        ("basin-gone", "deleting"),
    ]
    assert page["has_more"] is True
    assert json.loads(spelled.encode_stream_page(Page([], False))) == {"streams": [], "has_more": False}


# ---- a client wired to a server ----------------------------------------------------------------------------------

retentions = st.just(INFINITE) | st.integers(1, U64_MAX).map(Retention)
configs = st.builds(
    StreamConfig,
    storage_class=st.none() | st.sampled_from(["express", "standard"]),
    retention=st.none() | retentions,
    timestamping_mode=st.none() | st.sampled_from(TimestampingMode),
    timestamping_uncapped=st.none() | st.booleans(),
    delete_on_empty_seconds=st.none() | st.integers(0, U64_MAX),
)
basin_configs = st.builds(
    BasinConfig,
    default_stream_config=configs,
    create_stream_on_append=st.booleans(),
    create_stream_on_read=st.booleans(),
)
patches = st.builds(
    StreamConfigPatch,
    storage_class=st.sampled_from([UNSET, None, "express", "standard"]),
    retention=st.sampled_from([UNSET, None]) | retentions,
    timestamping_mode=st.sampled_from([UNSET, None, *TimestampingMode]),
    timestamping_uncapped=st.sampled_from([UNSET, None, True, False]),
    delete_on_empty_seconds=st.sampled_from([UNSET, None]) | st.integers(0, U64_MAX),
)
times = st.integers(0, 253_402_300_799_999)
names = st.text(min_size=1, max_size=8)
infos = st.tuples(names, times, st.none() | times)


@given(configs, names)
def test_stream_configurations_round_trip(config: StreamConfig, name: str) -> None:
    assert spelled.decode_ensure_stream(spelled.encode_stream_config(config)) == config
    assert client.decode_remote_stream_config(spelled.encode_stream_config(config)) == config
    if name not in (".", "..") and "\0" not in name:
        decoded = spelled.decode_create_stream(client.encode_create_stream(name, config), "b")
        assert decoded == (StreamRef("b", name), config)


@given(basin_configs)
def test_basin_configurations_round_trip(config: BasinConfig) -> None:
    assert client.decode_remote_basin_config(spelled.encode_basin_config(config)) == config
    assert create_basin(client.encode_create_basin("basin-name", config)) == ("basin-name", config)


@pytest.mark.parametrize("name", ["create_stream_on_append", "create_stream_on_read"])
def test_a_flag_is_not_null(name: str) -> None:
    assert code_of(lambda: spelled.decode_basin_patch(dump({name: None}))) is C.BAD_JSON
    assert code_of(lambda: spelled.decode_ensure_basin(dump({"config": {name: None}}), HERE)) is C.BAD_JSON


@given(patches, st.booleans())
def test_patches_round_trip(patch: StreamConfigPatch, flag: bool) -> None:
    assert spelled.decode_stream_patch(client.encode_stream_patch(patch)) == patch
    basin = BasinConfigPatch(default_stream_config=patch, create_stream_on_append=flag)
    assert spelled.decode_basin_patch(client.encode_basin_patch(basin)) == basin


@given(st.lists(infos, max_size=3), st.booleans())
def test_pages_round_trip(given_infos: list[tuple[str, int, int | None]], more: bool) -> None:
    basins = Page([BasinInfo(name=n, created_at=c, deleted_at=d) for n, c, d in given_infos], more)
    streams = Page([StreamInfo(name=n, created_at=c, deleted_at=d) for n, c, d in given_infos], more)
    assert client.decode_remote_basin_page(spelled.encode_basin_page(basins, HERE)) == basins
    assert client.decode_remote_stream_page(spelled.encode_stream_page(streams)) == streams
    for basin, stream in zip(basins.items, streams.items, strict=True):
        assert client.decode_remote_basin_info(spelled.encode_basin_info(basin, HERE)) == basin
        assert client.decode_remote_stream_info(spelled.encode_stream_info(stream)) == stream


def test_times_of_other_servers() -> None:
    info = client.decode_remote_stream_info(b'{"name":"s","created_at":"2023-11-14T23:13:20.0071234+01:00"}')
    assert info.created_at == 1_700_000_000_007


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"name":"s","created_at":"yesterday"}', b'{"name":"s","created_at":"2023-11-14T23:13:20"}', b"\xff"],
)
def test_a_server_that_answers_nonsense(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        client.decode_remote_stream_info(body)
    assert caught.value.failure.code is C.BAD_JSON


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])
def test_a_server_with_a_time_before_year_1_or_after_9999(time: str) -> None:
    """In UTC, in which it could not be said again."""
    for decode in (client.decode_remote_stream_info, client.decode_remote_basin_info):
        with pytest.raises(RemoteProtocolError, match=r"outside .* year") as caught:
            decode(b'{"name":"some-basin","created_at":"%b"}' % time.encode())
        assert caught.value.failure.code is C.BAD_JSON


def test_a_server_with_an_unknown_cipher_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="rot13"):
        client.decode_remote_basin_config(b'{"stream_cipher":"rot13"}')


@given(st.binary(max_size=40))
def test_garbage_is_refused_and_nothing_else(body: bytes) -> None:
    for decode in (
        create_basin,
        lambda it: spelled.decode_ensure_basin(it, HERE),
        spelled.decode_basin_patch,
        spelled.decode_ensure_stream,
        spelled.decode_stream_patch,
        lambda it: spelled.decode_create_stream(it, "basin-name"),
        lambda it: spelled.decode_stream_config_header(it.decode("latin-1")),
    ):
        try:
            decode(body)
        except OperationFailed as error:
            assert error.failure.code in (C.BAD_JSON, C.BAD_HEADER, C.INVALID)
