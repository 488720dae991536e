"""Each clause of the segment fact sheet is held by a case of the suites that `penstock conform` ships, or by a test.

Clauses are those of its sections 1.1 to 1.5; readings are the fifteen of the draft in its section 2.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from penstock.protocols.conformance import Suite
from penstock_pravega.segment.conformance import DRAFT, RELEASED

TESTS = Path(__file__).parents[1]
FOLDERS = {
    "codec": TESTS / "penstock_pravega/codec",
    "front": TESTS / "penstock_pravega/segment/front",
    "here": TESTS / "conformance",
    "store": TESTS / "gateway/store",
}
Clauses = Mapping[int, tuple[str, str]]
"""By number: the clause, and what holds it. `name-of-a-case`, or `front/reads.many_reads_at_once` for the test
`test_many_reads_at_once` in `test_reads.py` of the folder `front`."""

CLAUSES: Clauses = {
    # 1.1 frames
    1: (
        "an unknown type, a bad length, a short body: the connection is closed without a reply",
        "unknown-type negative-length short-body front/endings.what_is_no_message codec/messages.malformed",
    ),
    2: ("a request's length is bounded before its body comes", "length-beyond-the-limit"),
    3: ("bytes behind the last field are ignored", "surplus-bytes"),
    4: (
        "optional fields may be left out",
        "fields-left-out codec/messages.a_field_that_older_peers_leave_out_is_unknown_or_empty",
    ),
    5: ("an event of 8 MiB fits into one AppendBlockEnd", "largest-event front/appends.appends_in_flight_are_bounded"),
    # 1.2 Hello, versions, keep-alive
    6: ("Hello is answered with versions 16 to 5", "hello front/endings.hello"),
    7: (
        "versions that do not overlap: the connection is closed",
        "versions-that-do-not-overlap front/endings.versions_that_do_not_meet",
    ),
    8: (
        "a client need not wait for the answer to Hello",
        "hello-with-a-request messages-in-pieces front/endings.a_client_need_not_wait",
    ),
    9: ("Hello comes once, and first", "front/endings.what_is_no_message codec/released.what_is_wrong"),
    10: ("KeepAlive is echoed at once", "keep-alive front/endings.keep_alives"),
    11: ("every reply has the request's id", "request-ids front/any_request.any_request"),
    12: (
        "InvalidEventNumber has the layout of the client's version",
        "codec/released.the_layout_is_that_of_the_client front/appends.a_number_that_does_not_rise",
    ),
    # 1.3 segments
    13: (
        "CreateSegment: SegmentCreated, then SegmentAlreadyExists",
        "create-segment create-segment-again here/segment_together.segments_are_streams",
    ),
    14: (
        "GetStreamSegmentInfo: state, offsets, last change",
        "create-segment truncate-segment front/administration.info store/seal.nothing_is_appended_any_more",
    ),
    15: ("SealSegment", "seal-segment front/administration.sealing here/segment_together.segments_are_streams"),
    16: ("DeleteSegment", "delete-segment front/administration.deleting"),
    17: ("UpdateSegmentPolicy", "update-segment-policy"),
    18: ("attributes: compare and set, none is -2**63", "attributes front/administration.attributes"),
    19: (
        "TruncateSegment",
        "truncate-segment front/administration.truncating here/segment_together.trims_and_truncations_are_seen_by_all",
    ),
    20: (
        "CreateTransientSegment and MergeSegments, with attribute updates",
        "merge-segments front/administration.merging_with_attributes "
        "store/merges.an_update_whose_condition_does_not_hold",
    ),
    21: ("MergeSegmentsBatch", "merge-several-segments front/administration.merging_several"),
    22: ("LocateOffset", "front/administration.locating"),
    23: ("storage commands belong to the administrator's port", "front/administration.the_administrators_commands"),
    24: (
        "a request for a segment that is not there: NoSuchSegment",
        "unknown-segments front/administration.segments_that_are_not_there",
    ),
    # 1.3 tables
    25: ("CreateTableSegment: SegmentCreated, then SegmentAlreadyExists", "create-table-again front/tables.creating"),
    26: (
        "UpdateTableEntries: versions rise; any, must not exist, that very one",
        "update-and-read-a-table conditional-updates-of-a-table front/tables.conditions",
    ),
    27: ("all entries of an update are held against the state before it", "update-of-a-key-twice"),
    28: ("RemoveTableKeys", "remove-keys-of-a-table front/tables.conditions"),
    29: ("ReadTable: one entry per key, version -1 for a missing one", "update-and-read-a-table"),
    30: (
        "ReadTableKeys and ReadTableEntries go on by token, between bounds",
        "keys-of-a-table-by-pages entries-of-a-table-by-pages front/tables.iterating",
    ),
    31: (
        "ReadTableEntriesDelta: what is still current at or above a position",
        "changes-of-a-table front/tables.what_has_changed",
    ),
    32: ("GetTableSegmentInfo", "information-about-a-table front/tables.creating"),
    33: (
        "DeleteTableSegment: must it be empty",
        "delete-of-a-table-with-entries front/tables.removing_and_deleting",
    ),
    34: (
        "table_segment_offset: the table must end there",
        "table-that-ends-elsewhere front/tables.where_the_table_must_end",
    ),
    # 1.4 appending
    35: ("SetupAppend: -2**63 for an unknown writer", "setup-of-a-new-writer"),
    36: ("several writers and segments share a connection", "several-writers"),
    37: (
        "data of a writer that is not set up: closed",
        "writer-without-setup codec/released.what_is_wrong front/appends.a_segment_that_is_not_there",
    ),
    38: ("AppendBlock that is filled exactly", "block-that-is-full codec/released.forms_of_an_append"),
    39: ("AppendBlock with Padding", "block-with-padding codec/released.forms_of_an_append"),
    40: ("AppendBlock with PartialEvent", "block-with-a-partial-event codec/released.forms_of_an_append"),
    41: ("AppendBlockEnd alone", "append"),
    42: (
        "nothing comes between AppendBlock and AppendBlockEnd, and writers match",
        "message-within-a-block end-of-another-writer codec/released.what_is_wrong",
    ),
    43: ("an AppendBlock's header may come before its content", "codec/released.forms_of_an_append"),
    44: ("at least one event per append", "codec/released.what_is_wrong"),
    45: (
        "event numbers rise, need not be dense; an equal or lower one: InvalidEventNumber and the end",
        "stale-event-number front/appends.a_number_that_does_not_rise",
    ),
    46: ("DataAppended: number, previous number, request id, write offset", "append"),
    47: ("acknowledgements are in order; one may cover several appends", "appends-in-flight"),
    48: (
        "after a reconnect the writer is told its last number",
        "writer-that-reconnects here/segment_kill.positions_and_tables_are_kept",
    ),
    49: (
        "a stale number after a reconnect: InvalidEventNumber and the end",
        "stale-event-number front/appends.what_comes_late_on_a_connection_that_was_given_up",
    ),
    50: (
        "conditional appends: stored where the segment ends there, else ConditionalCheckFailed; the connection stays",
        "conditional-append conditional-block front/appends.conditions_are_in_order_with_other_appends",
    ),
    51: ("appending to a sealed segment: SegmentIsSealed", "seal-segment front/appends.a_sealed_segment"),
    52: (
        "appending to a missing segment: NoSuchSegment",
        "unknown-segments front/appends.a_segment_that_is_not_there front/appends.a_segment_that_was_made_again",
    ),
    # 1.5 events and reading
    53: ("events are stored with their headers, exactly as sent", "append read-anywhere"),
    54: ("byte streams store bytes as they are", "bytes-that-are-no-events conditional-block"),
    55: ("a read starts and stops anywhere", "read-anywhere front/reads.a_read_starts_anywhere"),
    56: ("offsets never change; truncation moves the start", "truncate-segment"),
    57: ("a read at the tail waits for bytes", "read-at-the-tail front/reads.many_reads_at_once"),
    58: (
        "a waiting read ends when the segment is sealed, truncated beyond it, or deleted",
        "seal-ends-a-waiting-read store/byte_waits.truncation_of_what_was_appended_meanwhile_ends_it "
        "front/reads.a_segment_that_goes_during_a_wait",
    ),
    59: (
        "a waiting read is answered empty, at the tail, after the hold time",
        "front/reads.a_read_at_the_tail_is_held_for_so_long",
    ),
    60: ("the end of a sealed segment", "end-of-a-sealed-segment"),
    61: ("a read before the start: SegmentIsTruncated", "truncate-segment"),
    62: (
        "a read beyond the end of a sealed segment, or at a negative offset: ErrorMessage, illegal argument",
        "reads-out-of-range front/reads.what_ends_a_wait front/reads.a_negative_offset",
    ),
    63: ("the reply has the request's offset and segment", "read-anywhere"),
    64: (
        "a reply has at most min(2 MiB, max(8, suggested)) bytes",
        "read-a-little front/reads.how_much_is_given front/reads.the_most_that_is_given",
    ),
    65: (
        "a waiting read holds up nothing else on its connection",
        "read-at-the-tail front/reads.many_reads_at_once front/appends.other_requests_go_on_beside_appends",
    ),
}

READINGS: Clauses = {
    1: ("type ids are those of the released protocol", "codec/messages.both_dialects_share_the_type_ids"),
    2: (
        "the first four bytes tell the dialect, for good",
        "hello-after-a-message codec/released.the_dialect_waits_for_four_bytes",
    ),
    3: (
        "flags: 0x80 at the tail, 0x40 at the end, others ignored",
        "end-of-the-segment codec/messages.the_other_flag_bits_are_ignored front/reads.draft_reads",
    ),
    4: (
        "Begin, Middle and End are 0, 1 and 2, in order",
        "begin-within-a-partial middle-without-a-begin unknown-part codec/draft_rules.what_is_wrong",
    ),
    5: ("Partials carry any message, others between them", "message-in-partials codec/draft_rules.what_is_wrong"),
    6: (
        "the length of a block is that on the wire; it may end early",
        "block-of-whole-events block-that-ends-early message-within-a-block codec/draft.shapes_at_every_cut "
        "front/draft.the_pieces_of_a_block_are_stored_as_they_come",
    ),
    7: (
        "EndAppendBlock has the offset behind the block; the rest of its last event may follow",
        "block-that-ends-in-a-partial end-at-another-offset front/draft.shapes_at_every_cut",
    ),
    8: ("connection offsets count stored bytes of one id", "several-connection-ids"),
    9: (
        "AppendSetup says where to go on; another offset ends the connection",
        "setup-of-a-new-connection-id setup-after-a-reconnect block-at-another-offset block-of-a-stale-connection "
        "here/segment_kill.positions_and_tables_are_kept",
    ),
    10: ("acknowledgements are cumulative", "blocks-in-flight"),
    11: ("an Event stands in a block, and a block after SetupAppend", "event-outside-a-block block-without-setup"),
    12: ("lengths are below 2^24", "length-of-2-24 unknown-type codec/draft_rules.what_is_wrong"),
    13: (
        "errors have the segment's name; all others end the connection",
        "setup-for-an-unknown-segment block-for-a-sealed-segment read-of-an-unknown-segment "
        "front/reads.a_draft_read_that_nothing_can_be_said_to front/draft.what_the_draft_has_no_word_for",
    ),
    14: ("names are modified UTF-8", "codec/messages.modified_utf8"),
    15: (
        "segments are administered by the released messages, KeepAlive and reads are as in the draft",
        "released-requests keep-alive-with-data read-from-the-middle read-at-the-tail "
        "front/administration.on_a_draft_connection",
    ),
}


@cache
def functions_in(module: Path) -> set[str]:
    """Return the names of a module's functions and methods."""
    nodes = ast.walk(ast.parse(module.read_text())) if module.exists() else ()
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing(holders: list[str], cases: set[str]) -> Iterator[str]:
    """Yield the holders that are neither a case nor a test."""
    for holder in holders:
        match = re.fullmatch(r"(\w+)/(\w+)\.(\w+)", holder)
        if match is None and holder not in cases:
            yield holder
        if match and f"test_{match[3]}" not in functions_in(FOLDERS[match[1]] / f"test_{match[2]}.py"):
            yield holder


@pytest.mark.parametrize(
    ("clauses", "count", "suite"), [(CLAUSES, 65, RELEASED), (READINGS, 15, DRAFT)], ids=["released", "draft"]
)
def test_every_clause_is_held(clauses: Clauses, count: int, suite: Suite) -> None:
    """By a case of the suite, which must find a planted fault, or by a test; and each case holds a clause."""
    assert list(clauses) == list(range(1, count + 1))
    cases = {case.name for case in suite.cases}
    holders = {number: names.split() for number, (_, names) in clauses.items()}
    assert all(holders.values())
    assert [(number, name) for number, names in holders.items() for name in missing(names, cases)] == []
    assert cases <= set().union(*holders.values())
