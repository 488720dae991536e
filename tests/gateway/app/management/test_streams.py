"""The streams that there are, page by page."""

from __future__ import annotations

import pytest
from support.management import Asker

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import CreateBasin, CreateStream, DeleteBasin
from penstock.model.records import StreamRef

WANTED = ["aa-basin/one", "aa-basin/two", "zz-basin/a/b", "zz-basin/one"]


@pytest.fixture
async def streams(back: EmbeddedBack) -> list[str]:
    """All of them, in order; one is there already."""
    for basin in ("zz-basin", "aa-basin", "empty-basin"):
        await back.perform(CreateBasin(basin))
    for name in WANTED:
        await back.perform(CreateStream(StreamRef(*name.split("/", 1))))
    return sorted([*WANTED, "basin-one/stream"])


async def test_all_of_them(asker: Asker, streams: list[str]) -> None:
    answer = await asker.get("/streams")
    assert (answer["listener"], answer["has_more"]) == ("listeners.s2", False)
    assert [one["stream"] for one in answer["streams"]] == streams
    assert answer["streams"][0]["created_at"] > 0 and answer["streams"][0]["deleted_at"] is None


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
async def test_pages_go_on_where_the_last_one_ended(asker: Asker, streams: list[str], limit: int) -> None:
    found: list[str] = []
    more = True
    while more:
        after = f"&after={found[-1]}" if found else ""
        answer = await asker.get(f"/streams?limit={limit}{after}")
        found += [one["stream"] for one in answer["streams"]]
        more = answer["has_more"]
        assert len(answer["streams"]) == limit or not more
    assert found == streams


async def test_some_of_them(asker: Asker, streams: list[str]) -> None:
    async def names(query: str) -> list[str]:
        return [one["stream"] for one in (await asker.get(f"/streams?{query}"))["streams"]]

    assert await names("basin=aa-basin") == ["aa-basin/one", "aa-basin/two"]
    assert await names("basin=aa-basin&after=aa-basin/one") == ["aa-basin/two"]
    assert await names("basin=aa-basin&after=zz-basin/one") == []
    assert await names("prefix=one") == ["aa-basin/one", "zz-basin/one"]
    assert await names("basin=no-such-basin") == []
    assert await names("after=b") == ["basin-one/stream", "zz-basin/a/b", "zz-basin/one"]
    assert await names("listener=s3p") == streams


async def test_a_basin_that_goes_away_is_left_out(asker: Asker, back: EmbeddedBack, streams: list[str]) -> None:
    await back.perform(DeleteBasin("aa-basin"))
    assert [one["stream"] for one in (await asker.get("/streams?after=aa-basin/one"))["streams"]] == streams[2:]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit: expected 1 to 1000"),
        ("limit=1001", "limit: expected 1 to 1000"),
        ("listener=s4", "listener: expected one of listeners.s2, listeners.s3p, listeners.segment, got 's4'"),
        ("first=1", "unknown parameter"),
    ],
)
async def test_what_is_no_question(asker: Asker, query: str, said: str) -> None:
    assert said in (await asker.get(f"/streams?{query}", 400))["message"]


@pytest.mark.parametrize("query", ["prefix=%ff", "basin=%ff", "after=%ff/%ff", "after=basin-one/%ff"])
async def test_what_is_no_text_is_refused(asker: Asker, streams: list[str], query: str) -> None:
    answer = await asker.ask("GET", f"/streams?{query}")
    assert answer.status == 400 and b"utf-8" in answer.body
