"""A configuration reaches the parts; a key that is left out leaves the part's own default."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.config import Drain, S2Limits, S2Listener, S3PLimits, S3PListener, S3PLoss, Store
from penstock.errors import CannotStart
from penstock.fronts.http_server import HttpSettings
from penstock.fronts.s2 import S2Settings
from penstock.fronts.s3p import S3PSettings
from penstock.policy.loss import Loss, LossPolicy
from penstock.routing.names import BasinInName
from penstock.store.settings import StoreSettings
from penstock.wiring import http_settings, s2_settings, s3p_settings, store_settings, tls_of
from penstock_codecs import limits


def test_defaults_are_those_of_the_parts() -> None:
    assert http_settings(S2Limits()) == HttpSettings()
    assert s2_settings(S2Listener(), Drain()) == S2Settings()
    assert s3p_settings(S3PListener()) == S3PSettings()
    assert store_settings(Store()) == StoreSettings(directory=Path("data"))


def test_the_s2_front_is_told_what_the_file_says() -> None:
    listener = S2Listener(
        default_basin="some-basin",
        basin_host_suffixes=(".example",),
        cors=False,
        auth_tokens=("a", "b"),
        sse_dialect="seed",
        compress=False,
    )
    told = s2_settings(listener, Drain(grace_seconds=1.5))
    assert told == S2Settings(
        default_basin="some-basin",
        basin_host_suffixes=(".example",),
        cors=False,
        bearer_tokens=frozenset({"a", "b"}),
        sse_dialect="seed",
        compress=False,
        drain_grace_seconds=1.5,
    )


def test_the_http_server_is_told_what_the_file_says() -> None:
    told = http_settings(
        S2Limits(
            keep_alive_seconds=1,
            head_timeout_seconds=2,
            slow_reader_seconds=3,
            max_head_bytes=4096,
            max_streams=5,
            receive_buffer_bytes=16_384,
            send_buffer_bytes=16_385,
        )
    )
    assert (told.keep_alive, told.head_timeout, told.slow_reader) == (1, 2, 3)
    assert (told.limits.max_head, told.limits.max_streams) == (4096, 5)
    assert (told.receive_buffer, told.send_buffer) == (16_384, 16_385)


def test_a_certificate_gives_tls_and_a_bad_one_a_reason(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout"
    try:
        subprocess.run([*command.split(), key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert tls_of(S2Listener(tls_certificate=str(certificate), tls_key=str(key))) is not None
    with pytest.raises(CannotStart, match="not a PEM certificate chain and its key"):
        tls_of(S2Listener(tls_certificate=str(key), tls_key=str(key)))
    assert tls_of(S2Listener()) is None


def test_the_s3p_front_is_told_what_the_file_says() -> None:
    listener = S3PListener(
        names="path",
        loss=S3PLoss(headers="envelope", empty_body="drop", command_records="refuse"),
        limits=S3PLimits(
            max_name_bytes=1,
            max_records_per_append=2,
            max_record_bytes=3,
            max_append_bytes=4,
            default_count=5,
            max_count=6,
            max_read_bytes=1_048_577,
            max_block_ms=8,
            max_option_pairs=9,
            max_option_bytes=41,
            idle_timeout_seconds=11,
            send_timeout_seconds=12,
        ),
    )
    assert s3p_settings(listener) == S3PSettings(
        names=BasinInName(),
        limits=limits.S3PLimits(1, 2, 3, 4, 5, 6, 8, 9, 41),
        loss=LossPolicy(Loss.ENVELOPE, Loss.DROP, Loss.REFUSE),
        max_read_bytes=1_048_577,
        idle_timeout_seconds=11,
        send_timeout_seconds=12,
    )


def test_the_store_is_told_what_the_file_says() -> None:
    store = Store(
        directory="somewhere",
        append_inflight_bytes=1_048_576,
        tail_cache_bytes=1_048_577,
        read_ahead_batches=3,
        cached_streams=4,
        reader_threads=5,
        sweep_interval_seconds=6,
    )
    assert store_settings(store) == StoreSettings(
        directory=Path("somewhere"),
        append_inflight_bytes=1_048_576,
        tail_cache_bytes=1_048_577,
        read_ahead_batches=3,
        cached_streams=4,
        reader_threads=5,
        sweep_interval_seconds=6,
    )
