"""S2's control plane as JSON: configurations, tokens, metrics and errors, for servers and for clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl

from fuzz.laws import chosen

from penstock.model.access_tokens import AccessTokenInfo, decode_info, encode_info
from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.streams import BasinConfig, BasinConfigPatch, StreamConfig, StreamConfigPatch, StreamInfo
from penstock.wire.http_failures import failure_to_http
from penstock_s2.codec import json_access_tokens, json_config, json_config_client, metrics
from penstock_s2.codec.errors import failure_from_http
from penstock_s2.codec.locations import decode_location
from penstock_s2.codec.names import decode_path_segment
from penstock_s2.codec.routes import match_route

NOW: Final = 1_800_000_000
"""The time of metrics requests, in seconds."""
SETS: Final = (metrics.AccountMetricSet, metrics.BasinMetricSet, metrics.StreamMetricSet)


def _metrics(body: bytes) -> None:
    kind, query = chosen(SETS, body)
    metrics.decode_metrics_query(dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)), kind, NOW)


def _path(body: bytes) -> None:
    for value in match_route(body.decode("latin-1")).parameters.values():
        decode_path_segment(value)


def _error(body: bytes) -> Failure:
    return failure_from_http(400 + (body[0] if body else 0), body[1:])


DECODERS: Final[tuple[Callable[[bytes], Any], ...]] = (
    lambda body: json_config.decode_create_basin(body, "here")[1],
    lambda body: json_config.decode_ensure_basin(body, "here"),
    json_config.decode_basin_patch,
    lambda body: json_config.decode_create_stream(body, "fuzzed-basin")[1],
    json_config.decode_ensure_stream,
    json_config.decode_stream_patch,
    lambda body: json_config.decode_stream_config_header(body.decode("latin-1")),
    json_config_client.decode_remote_basin_config,
    json_config_client.decode_remote_stream_config,
    json_config_client.decode_remote_basin_info,
    json_config_client.decode_remote_stream_info,
    json_config_client.decode_remote_basin_page,
    json_config_client.decode_remote_stream_page,
    json_access_tokens.decode_issue,
    lambda body: decode_location(body, "here"),
    _metrics,
    _path,
    _error,
)

SEEDS: Final = (
    b'{"basin":"fuzzed-basin","config":{"create_stream_on_append":true,"stream_cipher":"aes-256-gcm"}}',
    b'{"config":{"default_stream_config":{"retention_policy":{"age":60}}},"location":"here"}',
    b'{"default_stream_config":null,"stream_cipher":null,"create_stream_on_read":false}',
    b'{"stream":"a/b","config":{"storage_class":"express","delete_on_empty":{"min_age_secs":60}}}',
    b'{"timestamping":{"mode":"client-require","uncapped":true},"retention_policy":{"infinite":{}}}',
    b'{"retention_policy":null,"timestamping":{"mode":null},"delete_on_empty":{"min_age_secs":null}}',
    b'{"storage_class":"standard","retention_policy":{"age":1}}',
    b'{"default_stream_config":{"storage_class":"express"},"create_stream_on_append":true}',
    b'{"storage_class":null,"retention_policy":{"age":18446744073709551615},"timestamping":null}',
    b'{"name":"fuzzed-basin","location":"here","created_at":"2026-01-01T00:00:00.000Z","deleted_at":null}',
    b'{"name":"a","created_at":"2026-01-01T00:00:00+01:30","deleted_at":"2026-01-02T00:00:00Z","cipher":"aegis-256"}',
    b'{"basins":[{"name":"fuzzed-basin","created_at":"2026-01-01T00:00:00Z"}],"has_more":true}',
    b'{"streams":[{"name":"a","created_at":"2026-01-01T00:00:00Z"}],"has_more":false}',
    b'{"id":"x","scope":{"basins":{"prefix":""},"streams":{"prefix":"a/"},"op_groups":{"stream":{"read":true}},'
    b'"ops":["append","list-basins"]},"expires_at":"2030-01-01T00:00:00Z","auto_prefix_streams":true}',
    b'"here"',
    b"\x00set=account-ops&start=1799999000&end=1800000000&interval=minute",
    b"/v1/basins/fuzzed-basin/streams/a%2Fb/records/tail",
    b'\x0c{"seq_num_mismatch":7}',
)
MORE: Final = (
    (17, b'\x0c{"fencing_token_mismatch":"x"}'),
    (17, b'\x10{"tail":{"seq_num":1,"timestamp":2}}'),
    (17, b'\x04{"code":"stream_not_found","message":"none"}'),
    (15, b"\x01set=storage&start=1799990000&end=1800000000"),
)

WORDS: Final = (*tuple({word for seed in SEEDS for word in seed.split(b'"')[1::2] if word}), b"null", b"true", b"false")


def seeds() -> Iterator[bytes]:
    """Yield a good input for each decoder."""
    for index, seed in (*enumerate(SEEDS), *MORE):
        yield bytes([index]) + seed


def check(data: bytes) -> None:
    """Check that bytes are refused with an error of the codec, or give a value that is encoded to bytes that give it
    again."""
    decode, body = chosen(DECODERS, data)
    try:
        value = decode(body)
    except (OperationFailed, RemoteProtocolError):
        return
    again = _again(value)
    assert again == value, f"{value} became {again}"


def _again(value: Any) -> Any:
    match value:
        case BasinConfig():
            return json_config_client.decode_remote_basin_config(json_config.encode_basin_config(value))
        case StreamConfig():
            return json_config_client.decode_remote_stream_config(json_config.encode_stream_config(value))
        case BasinConfigPatch():
            return json_config.decode_basin_patch(json_config_client.encode_basin_patch(value))
        case StreamConfigPatch():
            return json_config.decode_stream_patch(json_config_client.encode_stream_patch(value))
        case StreamInfo():
            return json_config_client.decode_remote_stream_info(json_config.encode_stream_info(value))
        case AccessTokenInfo():
            return decode_info(encode_info(value))
        case Failure():
            read = failure_from_http(*failure_to_http(value))
            assert (read.code is value.code) or value.code is FailureCode.INVALID or value.details, (value, read)
            return value
        case _:
            return value
