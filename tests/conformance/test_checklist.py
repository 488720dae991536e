"""Every item of the S2 checklist (S2 fact sheet, section 10) is held by a conformance case or by a test."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from penstock_s2.conformance import SUITE

ITEMS = 89
TESTS = Path(__file__).parents[1]
HELD: dict[str, str] = {
    # A. Routing and headers
    "health": "1",
    "tail-of-an-empty-stream": "2",
    "missing-basin": "3",
    "unknown-basin": "5 67 82",
    "tail-of-an-unknown-stream": "6",
    "names-with-a-slash": "7",
    "invalid-stream-names": "7 84",
    "unknown-method": "8",
    "penstock_s2/test_refusals.py::test_a_token_is_demanded_where_there_are_tokens": "9",
    "penstock_s2/test_refusals.py::test_tokens_are_ignored_where_there_are_none": "9",
    "both-versions-of-http": "10",
    "penstock_s2/test_pages.py::test_a_preflight_says_what_is_allowed": "11",
    "compressed-responses": "12",
    # B. Unary append
    "append-as-json": "13",
    "append-as-protobuf": "14",
    "media-types": "15 16",
    "body-of-another-type": "16",
    "append-without-json": "17",
    "append-without-protobuf": "17",
    "append-of-nothing": "18",
    "most-records": "19",
    "largest-batch": "20",
    "append-at-a-position": "21",
    "append-with-a-fencing-token": "22 24",
    "both-conditions": "23",
    "longest-token": "25",
    "trim": "26 47",
    "bounds-of-trims": "26 41",
    "unknown-command": "26 27",
    "append-as-base64": "28",
    "invalid-base64": "28",
    "unknown-format": "28",
    "timestamps-never-fall": "29",
    "timestamps-of-the-future": "29",
    "modes-of-timestamps": "30",
    "append-creates-a-stream": "31",
    "compressed-requests": "32",
    "delete-a-stream": "33 83",
    "configuration-of-a-stream-that-is-created": "34",
    # C. Unary read
    "read-from-a-number": "35",
    "read-at-the-tail": "36 37",
    "read-from-the-end": "38",
    "two-starts": "39",
    "read-with-bounds": "40",
    "read-from-a-time": "41",
    "read-until-a-time": "42",
    "read-of-much": "43",
    "read-of-many-bytes": "43",
    "read-that-waits": "44",
    "penstock_s2/test_long_waits.py::test_a_unary_wait_is_at_most_60_seconds": "44",
    "bytes-that-are-no-text": "45",
    "read-as-protobuf": "46",
    "read-creates-a-stream": "48",
    # D. SSE
    "events-of-records": "49",
    "media-type-of-events": "50",
    "follow-as-events": "51",
    "penstock_s2/test_long_waits.py::test_a_session_is_never_silent_for_long": "51 71",
    "last-event-id": "52",
    "bad-last-event-id": "53",
    "beyond-the-tail-as-events": "54",
    "deletion-as-events": "55",
    "wait-as-events": "56",
    "penstock_s2/test_slow_clients.py::test_a_reader_that_leaves_frees_its_connection": "57",
    # E. S2S append session
    "appends-in-a-session": "58 60",
    "answers-while-the-request-goes-on": "59",
    "condition-in-a-session": "61",
    "frame-that-is-too-long": "62",
    "frame-of-garbage": "62 65",
    "frame-that-is-cut-off": "63",
    "empty-input": "64",
    "compressed-frames": "65",
    "frames-in-pieces": "66",
    "session-on-an-unknown-stream": "67",
    "penstock_s2/test_slow_clients.py::test_acknowledgements_that_are_not_read_hold_the_sender_back_on_http1": "68",
    "penstock_s2/test_long_waits.py::test_an_idle_append_session_stays_open": "69",
    # F. S2S read session
    "media-type-of-a-session": "70",
    "bounds-in-a-session": "72 73",
    "follow-in-a-session": "71",
    "compressed-batches": "74",
    "beyond-the-tail-in-a-session": "75",
    "follow-during-appends-in-a-session": "76",
    "session-of-a-large-record": "77",
    "penstock_s2/test_draining.py::test_sessions_are_advised_to_reconnect": "78",
    "penstock_s2/test_draining.py::test_new_requests_are_refused": "78",
    # G. Control plane
    "create-a-stream": "79",
    "create-a-basin": "79 80",
    "repeated-creation": "80",
    "configure-a-stream": "81",
    "configure-a-basin": "81",
    "list-streams": "82",
    "list-basins": "82",
    "penstock_s2/front/test_parameters.py::test_limits_of_listings": "82",
    "delete-a-basin": "83",
    "invalid-configurations": "84",
    "invalid-basins": "4 84",
    "penstock_s2/test_refusals.py::test_access_tokens_are_not_implemented_without_access": "85",
    "penstock_s2/test_refusals.py::test_the_gateway_is_one_location": "85",
    "penstock_s2/test_metrics.py::test_a_basin_that_was_worked_in": "85",
    # H. Cross-protocol
    "same-records-by-every-way": "86",
    "writers-of-every-kind": "86",
    "acknowledged-records-are-visible": "87",
    "one-winner-per-position": "88",
    "conformance/test_durability.py::test_kill_nine_in_the_middle_of_a_load": "89",
}
"""Numbers of items, by the case of `penstock conform` or the test that holds them."""


@cache
def names_in(file: str) -> set[str]:
    """Return the names of a file's tests."""
    tree = ast.parse((TESTS / file).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in names if name.startswith("test_")}


def test_every_item_is_held() -> None:
    assert {int(number) for numbers in HELD.values() for number in numbers.split()} == set(range(1, ITEMS + 1))


@pytest.mark.parametrize("holder", HELD)
def test_what_holds_an_item_is_there(holder: str) -> None:
    file, _, test = holder.partition("::")
    assert test in names_in(file) if test else holder in {case.name for case in SUITE.cases}
