"""The clauses of the segment protocol, and that each has a test that bears its number.

Clauses are those of the segment fact sheet, sections 1.1 to 1.5; readings are the fifteen of its section 2.
"""

import re
from pathlib import Path

CLAUSES = {
    # 1.1 frames
    1: "an unknown type, a bad length, a short body: the connection is closed without a reply",
    2: "a request's length is bounded before its body comes",
    3: "bytes behind the last field are ignored",
    4: "optional fields may be left out",
    5: "an event of 8 MiB fits into one AppendBlockEnd",
    # 1.2 Hello, versions, keep-alive
    6: "Hello is answered with versions 16 to 5",
    7: "versions that do not overlap: the connection is closed",
    8: "a client need not wait for the answer to Hello",
    9: "Hello comes once, and first",
    10: "KeepAlive is echoed at once",
    11: "every reply has the request's id",
    12: "InvalidEventNumber has the layout of the client's version",
    # 1.3 segments
    13: "CreateSegment: SegmentCreated, then SegmentAlreadyExists",
    14: "GetStreamSegmentInfo: state, offsets, last change",
    15: "SealSegment",
    16: "DeleteSegment",
    17: "UpdateSegmentPolicy",
    18: "attributes: compare and set, none is -2**63",
    19: "TruncateSegment",
    20: "CreateTransientSegment and MergeSegments, with attribute updates",
    21: "MergeSegmentsBatch",
    22: "LocateOffset",
    23: "storage commands belong to the administrator's port",
    24: "a request for a segment that is not there: NoSuchSegment",
    # 1.3 tables
    25: "CreateTableSegment: SegmentCreated, then SegmentAlreadyExists",
    26: "UpdateTableEntries: versions rise; any, must not exist, that very one",
    27: "all entries of an update are held against the state before it",
    28: "RemoveTableKeys",
    29: "ReadTable: one entry per key, version -1 for a missing one",
    30: "ReadTableKeys and ReadTableEntries go on by token, between bounds",
    31: "ReadTableEntriesDelta: what is still current at or above a position",
    32: "GetTableSegmentInfo",
    33: "DeleteTableSegment: must it be empty",
    34: "table_segment_offset: the table must end there",
    # 1.4 appending
    35: "SetupAppend: -2**63 for an unknown writer",
    36: "several writers and segments share a connection",
    37: "data of a writer that is not set up: closed",
    38: "AppendBlock that is filled exactly",
    39: "AppendBlock with Padding",
    40: "AppendBlock with PartialEvent",
    41: "AppendBlockEnd alone",
    42: "nothing comes between AppendBlock and AppendBlockEnd, and writers match",
    43: "an AppendBlock's header may come before its content",
    44: "at least one event per append",
    45: "event numbers rise, need not be dense; an equal or lower one: InvalidEventNumber and the end",
    46: "DataAppended: number, previous number, request id, write offset",
    47: "acknowledgements are in order; one may cover several appends",
    48: "after a reconnect the writer is told its last number",
    49: "a stale number after a reconnect: InvalidEventNumber and the end",
    50: "conditional appends: stored where the segment ends there, else ConditionalCheckFailed; the connection stays",
    51: "appending to a sealed segment: SegmentIsSealed",
    52: "appending to a missing segment: NoSuchSegment",
    # 1.5 events and reading
    53: "events are stored with their headers, exactly as sent",
    54: "byte streams store bytes as they are",
    55: "a read starts and stops anywhere",
    56: "offsets never change; truncation moves the start",
    57: "a read at the tail waits for bytes",
    58: "a waiting read ends when the segment is sealed, truncated beyond it, or deleted",
    59: "a waiting read is answered empty, at the tail, after the hold time",
    60: "the end of a sealed segment",
    61: "a read before the start: SegmentIsTruncated",
    62: "a read beyond the end of a sealed segment, or at a negative offset: ErrorMessage, illegal argument",
    63: "the reply has the request's offset and segment",
    64: "a reply has at most min(2 MiB, max(8, suggested)) bytes",
    65: "a waiting read holds up nothing else on its connection",
}
READINGS = 15


def test_every_clause_has_a_test() -> None:
    folder = Path(__file__).parent
    source = "\n".join(path.read_text() for path in folder.glob("test_segment_*.py"))
    for word, wanted in (("clause", set(CLAUSES)), ("reading", set(range(1, READINGS + 1)))):
        names = re.findall(rf"^def test_{word}s?_((?:\d+_)(?:and_\d+_)*)", source, re.MULTILINE)
        found = {int(number) for name in names for number in re.findall(r"\d+", name)}
        assert found == wanted
