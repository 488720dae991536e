"""Tests of `support.sharing`: the files that a run leaves out, and the order of the others."""

from __future__ import annotations

import pytest
from support.sharing import ROOT, SLOW, left_out, place

FAST, ALL, GENERATED = "not slow and not long", "slow and not long", "hypothesis and not slow and not long"


@pytest.mark.parametrize(
    ("file", "runs"),
    [
        ("tests/peers/test_kafka_sasl.py", {ALL}),  # named in SLOW
        ("tests/bridges/test_chaos.py", {ALL}),
        ("tests/peers/test_durable_streams.py", {FAST, ALL}),  # some tests are marked
        ("tests/penstock_pravega/segment/front/test_administration.py", {FAST, ALL}),  # its conftest.py marks some
        ("tests/penstock_pravega/codec/test_laws.py", {FAST, GENERATED}),
        ("tests/gateway/core/test_identities.py", {FAST}),
        ("tests/conftest.py", {FAST, ALL, GENERATED}),
    ],
)
def test_a_file_is_left_out_if_none_of_its_tests_run(file: str, runs: set[str]) -> None:
    assert {run for run in (FAST, ALL, GENERATED) if not left_out(ROOT / file, run)} == runs
    assert not any(left_out(ROOT / file, run) for run in ("", "long"))


def test_slow_files_are_there() -> None:
    assert not [file for file in SLOW if not (ROOT / file).is_file()]


def test_those_that_need_spark_come_first_and_those_that_wait_last() -> None:
    files = ["tests/peers/test_kafka_sasl.py", "tests/penstock_pravega/codec/test_laws.py", "tests/test_documents.py"]
    assert sorted([*files, "tests/pipeline/jobs/test_audit.py"], key=place) == [
        "tests/pipeline/jobs/test_audit.py",
        "tests/test_documents.py",
        "tests/penstock_pravega/codec/test_laws.py",
        "tests/peers/test_kafka_sasl.py",
    ]
