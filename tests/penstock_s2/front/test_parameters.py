"""Parameters in a request's head (S2 fact sheet 1.1, 1.2, 5.4)."""

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import FromSeqNum, FromTailOffset, FromTimestamp
from penstock.model.records import StreamRef
from penstock.net.http.exchange import Request
from penstock_s2.codec.media import Media
from penstock_s2.front.control import listing
from penstock_s2.front.parameters import accepted, basin_of, media_of, query_of, read_of
from penstock_s2.front.settings import S2Settings

STREAM = StreamRef("conf-basin-01", "a/b")


def request(*headers: tuple[str, str], query: str = "", authority: str = "127.0.0.1:8080") -> Request:
    return Request("GET", "/v1/streams/s/records", query, headers, authority, "1.1", "http")


@pytest.mark.parametrize(
    ("value", "media"),
    [
        ("application/json", Media.JSON),
        ("application/vnd.x+json; charset=utf-8", Media.JSON),
        ("Application/X-Protobuf", Media.PROTOBUF),
        ("application/json, text/event-stream", Media.JSON),
        ("text/event-stream, application/json", Media.EVENT_STREAM),
        ("s2s/proto", Media.S2S),
        ("*/*", Media.JSON),
        ("nonsense", Media.JSON),
        ("", Media.JSON),
    ],
)
def test_only_the_first_accepted_type_counts(value: str, media: Media) -> None:
    assert accepted(request(("accept", value))) is media


def test_an_unknown_content_type_is_not_json() -> None:
    assert media_of(request(("content-type", "text/plain"))) is Media.OTHER
    assert media_of(request()) is Media.OTHER


@pytest.mark.parametrize(
    ("asked", "settings", "basin"),
    [
        (request(("s2-basin", "by-header-1"), authority="by-host-1.localhost"), S2Settings(), "by-header-1"),
        (request(authority="by-host-1.localhost:8080"), S2Settings(), "by-host-1"),
        (request(authority="BY-HOST-1.LOCALHOST"), S2Settings(), "by-host-1"),
        (request(query="seq_num=0&s2-basin=by-query-1"), S2Settings(), "by-query-1"),
        (request(), S2Settings(default_basin="by-default"), "by-default"),
        (request(authority="by-host-2.b.example"), S2Settings(basin_host_suffixes=(".b.example",)), "by-host-2"),
    ],
)
def test_where_a_basin_may_be_named(asked: Request, settings: S2Settings, basin: str) -> None:
    assert basin_of(asked, {}, settings) == basin


def test_the_path_names_the_basin_before_all_else() -> None:
    assert basin_of(request(("s2-basin", "by-header-1")), {"basin": "by-path-1"}, S2Settings()) == "by-path-1"


@pytest.mark.parametrize(
    ("asked", "parameters", "code"),
    [
        (request(), {}, FailureCode.BAD_HEADER),
        (request(("s2-basin", "AB")), {}, FailureCode.BAD_HEADER),
        (request(authority="ab.localhost"), {}, FailureCode.BAD_HEADER),
        (request(query="s2-basin=AB"), {}, FailureCode.BAD_QUERY),
        (request(), {"basin": "AB"}, FailureCode.BAD_PATH),
    ],
)
def test_a_basin_that_is_missing_or_illegal(asked: Request, parameters: dict[str, str], code: FailureCode) -> None:
    with pytest.raises(OperationFailed) as error:
        basin_of(asked, parameters, S2Settings())
    assert error.value.failure.code is code


def test_a_missing_basin_says_which_header() -> None:
    with pytest.raises(OperationFailed) as error:
        basin_of(request(), {}, S2Settings())
    assert error.value.failure.message == "Missing header `s2-basin`"


@pytest.mark.parametrize("named", [request(("s2-basin", "AB")), request(authority="ab.localhost")])
def test_a_bad_name_of_a_basin_names_the_header(named: Request) -> None:
    with pytest.raises(OperationFailed) as error:
        basin_of(named, {}, S2Settings())
    assert error.value.failure.message == "Invalid header `s2-basin`: basin name must be 8 to 48 characters, not 2"


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ("", FromTailOffset(0)),
        ("seq_num=0", FromSeqNum(0)),
        ("timestamp=18446744073709551615", FromTimestamp(2**64 - 1)),
        ("tail_offset=7&unknown=x", FromTailOffset(7)),
        ("seq_num=%2B5", FromSeqNum(5)),
        ("seq_num=" + "0" * 9000 + "5", FromSeqNum(5)),
    ],
)
def test_where_a_read_starts(query: str, start: object) -> None:
    assert read_of(STREAM, query_of(request(query=query)), None).start == start


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("seq_num=0&tail_offset=1", FailureCode.INVALID),
        ("timestamp=5&until=5", FailureCode.INVALID),
        ("seq_num=abc", FailureCode.BAD_QUERY),
        ("seq_num=-1", FailureCode.BAD_QUERY),
        ("seq_num=+1", FailureCode.BAD_QUERY),
        ("seq_num=18446744073709551616", FailureCode.BAD_QUERY),
        ("count=", FailureCode.BAD_QUERY),
        ("wait=1.5", FailureCode.BAD_QUERY),
        ("wait=4294967296", FailureCode.BAD_QUERY),
        ("seq_num=%2B", FailureCode.BAD_QUERY),
        ("clamp=yes", FailureCode.BAD_QUERY),
        ("seq_num=%FF", FailureCode.BAD_QUERY),
        ("seq_num=١", FailureCode.BAD_QUERY),
    ],
)
def test_queries_that_are_refused(query: str, code: FailureCode) -> None:
    with pytest.raises(OperationFailed) as error:
        read_of(STREAM, query_of(request(query=query)), None)
    assert error.value.failure.code is code


@pytest.mark.parametrize(
    ("query", "may_follow"),
    [("", True), ("count=1", False), ("count=1&wait=1", True), ("wait=0", True), ("until=9", False)],
)
def test_which_reads_may_follow(query: str, may_follow: bool) -> None:
    assert read_of(STREAM, query_of(request(query=query)), None).may_follow is may_follow


def test_raw_bytes_of_a_query_are_utf8() -> None:
    raw = "prefix=é/&start_after=%C3%A9".encode().decode("latin-1")
    assert query_of(request(query=raw)) == {"prefix": "é/", "start_after": "é"}
    assert query_of(request(query="prefix=\xff&x=%ff")) == {"prefix": "\ufffd", "x": "\ufffd"}


@pytest.mark.parametrize(
    ("query", "limit"), [({}, 1000), ({"limit": "0"}, 1000), ({"limit": "5000"}, 1000), ({"limit": "7"}, 7)]
)
def test_limits_of_listings(query: dict[str, str], limit: int) -> None:
    assert listing(query) == ("", "", limit)
