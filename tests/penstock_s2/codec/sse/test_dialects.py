"""Ids and formats of the dialects (S2 fact sheet, section 3; the seeds' page on streaming reads)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import U64_MAX
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.sse.dialects import DIALECTS, S2, SEED, EventId, SseDialect


@pytest.mark.parametrize(
    ("dialect", "text", "event_id"),
    [
        (S2, "1,2,24", EventId(1, 2, 24)),
        (S2, "0,0,0", EventId(0, 0, 0)),
        (S2, "007,1,8", EventId(7, 1, 8)),
        (S2, f"{U64_MAX},{U64_MAX},{U64_MAX}", EventId(U64_MAX, U64_MAX, U64_MAX)),
        (SEED, "42:10:8192", EventId(42, 10, 8192)),
    ],
)
def test_good_ids(dialect: SseDialect, text: str, event_id: EventId) -> None:
    assert dialect.parse_id(text) == event_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1",
        "1,2",
        "1,2,3,4",
        "1,2,",
        ",2,3",
        "1, 2,3",
        " 1,2,3",
        "1,2,3\n",
        "-1,2,3",
        "+1,2,3",
        "1.0,2,3",
        "1e3,2,3",
        "1_0,2,3",
        "0x1,2,3",
        "\u0661,2,3",
        f"{U64_MAX + 1},2,3",
        "9" * 5000 + ",2,3",
        "1:2:3",
    ],
)
def test_malformed_ids(text: str) -> None:
    with pytest.raises(OperationFailed, match="Invalid header `last-event-id`: ") as caught:
        S2.parse_id(text)
    assert caught.value.failure.code is FailureCode.BAD_HEADER
    assert len(caught.value.failure.message) < 200
    with pytest.raises(OperationFailed):
        SEED.parse_id(text.replace(":", ";").replace(",", ":"))


numbers = st.integers(0, U64_MAX)


@given(st.sampled_from(list(DIALECTS.values())), st.builds(EventId, numbers, numbers, numbers))
def test_ids_round_trip(dialect: SseDialect, event_id: EventId) -> None:
    assert dialect.parse_id(dialect.spell_id(event_id)) == event_id


def test_formats() -> None:
    assert S2.parse_format(None) is BytesFormat.RAW
    assert SEED.parse_format(None) is BytesFormat.BASE64
    assert SEED.parse_format("utf8") is BytesFormat.RAW
    assert SEED.parse_format("raw") is BytesFormat.RAW
    assert S2.parse_format("base64") is SEED.parse_format("base64") is BytesFormat.BASE64
    with pytest.raises(OperationFailed, match="s2-format"):
        S2.parse_format("utf8")
