"""The segment listener under attack: clients without a route, or whose route allows less, send every kind of request.

What is attacked belongs to others: a stream's segment, and what clients keep beside it (a transaction, a transient
segment, a reader group's state, its watermarks, a table). Each store's file is compared before and after, row by row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import pytest
from support.clocks import threads_hold
from support.records_only import RecordsOnly
from support.routing import routed
from support.segment.back import opened
from support.segment.front import Client, Connect, bytes_of, serving
from support.store import Wall
from trio.testing import MockClock

from penstock.app.config import RouteTable
from penstock.backends.byte_view import open_bytes_on_records
from penstock.backends.combined import Combined
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.backends.sequence_numbering import IndexedSettings, open_indexed
from penstock.core.back import Back, SwappableBack
from penstock.core.identity import CLIENT
from penstock.core.identity import Client as Who
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.operations import EnsureBasin
from penstock.model.records import StreamRef
from penstock_pravega.codec import Dialect, SegmentMessage, TableEntry, TableKey, draft, join_events, released
from penstock_pravega.segment.front import SegmentFront, SegmentSettings
from penstock_pravega.segment.names import SegmentNames

BASIN: Final = "telemetry"
STREAM: Final = f"{BASIN}/orders/0.#epoch.0"
HEX: Final = "0" * 31 + "1"
BESIDE: Final = [
    f"{STREAM}#transaction.{HEX}",
    f"{STREAM}#transient.{HEX}",
    f"{BASIN}/_RGreaders/0.#epoch.0",
    f"{BASIN}/_MARKorders/0.#epoch.0",
]
TABLE: Final = f"{BASIN}/readers_kvtable/0.#epoch.0"
OWN: Final = "public-basin/own/0.#epoch.0"
"""The attacker's own stream, which a merge might fill."""
UNROUTED: Final = "elsewhere/_RGreaders/0.#epoch.0"
"""A name that no route takes; so do the others below."""
FRESH: Final = ["elsewhere/orders/0.#epoch.0", UNROUTED, f"elsewhere/orders/0.#epoch.0#transaction.{HEX}"]
NO_SEGMENTS: Final = ["any text", "_system/_tables/completed", "#controller", f"{STREAM}#part", ""]
WRITER: Final = UUID(int=7)
ATTRIBUTE: Final = UUID(int=8)
KEY: Final = TableKey(b"key", -(1 << 63))

ROUTES: Final = (
    RouteTable(name="mine", basin=BASIN, identity=("plant",), back="far"),
    RouteTable(name="readers", basin=BASIN, identity=("reader",), back="far", allow=("read",)),
    RouteTable(name="writers", basin=BASIN, identity=("writer",), back="far", allow=("append",)),
    RouteTable(name="open", basin="public-basin"),
)

Build = Callable[[str], SegmentMessage]
ON_SEGMENTS: Final[dict[str, tuple[str, Build]]] = {
    "CreateSegment": ("manage", lambda name: released.CreateSegment(1, name, 0, 0)),
    "CreateTransientSegment": ("append", lambda name: released.CreateTransientSegment(1, WRITER, name)),
    "SealSegment": ("manage", lambda name: released.SealSegment(1, name)),
    "DeleteSegment": ("manage", lambda name: released.DeleteSegment(1, name)),
    "TruncateSegment": ("manage", lambda name: released.TruncateSegment(1, name, 12)),
    "UpdateSegmentPolicy": ("manage", lambda name: released.UpdateSegmentPolicy(1, name, 1, 1)),
    "GetStreamSegmentInfo": ("any", lambda name: released.GetStreamSegmentInfo(1, name)),
    "GetSegmentAttribute": ("append", lambda name: released.GetSegmentAttribute(1, name, ATTRIBUTE)),
    "UpdateSegmentAttribute": ("append", lambda name: released.UpdateSegmentAttribute(1, name, ATTRIBUTE, 9, 5)),
    "LocateOffset": ("read", lambda name: released.LocateOffset(1, name, 0)),
    "ReadSegment": ("read", lambda name: released.ReadSegment(name, 0, 100, "", 1)),
    "MergeSegments from": ("append", lambda name: released.MergeSegments(1, OWN, name)),
    "MergeSegments into": ("append", lambda name: released.MergeSegments(1, name, OWN)),
    "MergeSegmentsBatch from": ("append", lambda name: released.MergeSegmentsBatch(1, OWN, (name,))),
    "MergeSegmentsBatch into": ("append", lambda name: released.MergeSegmentsBatch(1, name, (OWN,))),
    "SetupAppend": ("append", lambda name: released.SetupAppend(1, WRITER, name)),
    "FlushToStorage": ("never", lambda _: released.FlushToStorage(1, "", 1)),
    "ListStorageChunks": ("never", lambda name: released.ListStorageChunks(name, "", 1)),
}
"""Each with what a route must allow for it: `any` of them, or `never`."""
EVENT: Final = join_events([b"x"])
APPENDS: Final[dict[str, list[SegmentMessage]]] = {
    "AppendBlockEnd": [released.AppendBlockEnd(WRITER, len(EVENT), EVENT, 1, 1, 2)],
    "AppendBlock": [released.AppendBlock(WRITER, EVENT), released.AppendBlockEnd(WRITER, len(EVENT), b"", 1, 1, 2)],
    "ConditionalAppend": [released.ConditionalAppend(WRITER, 1, 13, b"x", 2)],
    "ConditionalBlockEnd": [released.ConditionalBlockEnd(WRITER, 1, 13, b"x", 2)],
}
"""They come behind a SetupAppend, whatever is answered to it."""
ON_TABLES: Final[dict[str, tuple[str, Build]]] = {
    "CreateTableSegment": ("append", lambda name: released.CreateTableSegment(1, name)),
    "DeleteTableSegment": ("append", lambda name: released.DeleteTableSegment(1, name, False)),
    "GetTableSegmentInfo": ("any", lambda name: released.GetTableSegmentInfo(1, name)),
    "UpdateTableEntries": (
        "append",
        lambda name: released.UpdateTableEntries(1, name, "", (TableEntry(KEY, b"mine now"),)),
    ),
    "RemoveTableKeys": ("append", lambda name: released.RemoveTableKeys(1, name, "", (KEY,))),
    "ReadTable": ("read", lambda name: released.ReadTable(1, name, "", (KEY,))),
    "ReadTableKeys": ("read", lambda name: released.ReadTableKeys(1, name, "", 10, b"")),
    "ReadTableEntries": ("read", lambda name: released.ReadTableEntries(1, name, "", 10, b"")),
    "ReadTableEntriesDelta": ("read", lambda name: released.ReadTableEntriesDelta(1, name, "", 0, 10)),
}
DRAFT: Final[dict[str, tuple[str, Build]]] = {
    "draft.SetupAppend": ("append", lambda name: draft.SetupAppend(WRITER, name)),
    "draft.ReadSegment": ("read", lambda name: draft.ReadSegment(name, 0, 100)),
}
REFUSALS: Final = (
    released.AuthTokenCheckFailed,
    released.NoSuchSegment,
    released.ErrorMessage,
    released.OperationUnsupported,
    draft.NoSuchSegment,
    type(None),  # the connection ended
)
assert len({*ON_SEGMENTS, *APPENDS, *ON_TABLES, *DRAFT}) >= 25


class Attack(NamedTuple):
    kind: str
    name: str
    needs: str
    messages: list[SegmentMessage]
    dialect: Dialect = Dialect.RELEASED


def attacks(segments: list[str], tables: list[str]) -> Iterator[Attack]:
    """Every kind of request on each of these."""
    for name in segments:
        for kind, (needs, build) in ON_SEGMENTS.items():
            yield Attack(kind, name, needs, [build(name)])
        for kind, messages in APPENDS.items():
            yield Attack(kind, name, "append", [released.SetupAppend(1, WRITER, name), *messages])
        for kind, (needs, build) in DRAFT.items():
            yield Attack(kind, name, needs, [build(name)], Dialect.DRAFT)
    for name in tables:
        for kind, (needs, build) in ON_TABLES.items():
            yield Attack(kind, name, needs, [build(name)])


class Site:
    """A segment front with routes, in front of two stores."""

    def __init__(self, connect: Connect, here: EmbeddedBack, directory: Path) -> None:
        self.connect = connect
        self.here = here
        self._directory = directory

    def stored(self) -> list[list[str]]:
        """All that is in the stores' files."""
        found = []
        for path in sorted(self._directory.glob("*/*.sqlite3")):
            with sqlite3.connect(path) as db:
                found.append(list(db.iterdump()))
            db.close()
        assert len(found) == 2, "two stores"
        return found

    @contextmanager
    def client(self, identity: str) -> Iterator[None]:
        before = CLIENT.set(Who(identity))
        try:
            yield
        finally:
            CLIENT.reset(before)

    async def carried_out(self, attack: Attack) -> bool:
        """Send an attack's messages on a connection of its own; whether anything was answered but a refusal."""
        client: Client = await self.connect(attack.dialect)
        await client.stream.send_all(bytes_of(*attack.messages))
        await client.stream.send_eof()
        answers = []
        while (answer := await client.reply()) is not None:
            answers.append(answer)
        await client.stream.aclose()
        return any(not isinstance(answer, REFUSALS) for answer in answers)


@asynccontextmanager
async def embedded(_here: EmbeddedBack, there: EmbeddedBack) -> AsyncIterator[Back]:
    yield there


@asynccontextmanager
async def segment_back(here: EmbeddedBack, there: EmbeddedBack) -> AsyncIterator[Back]:
    async with (
        opened(SegmentFront(there)) as (behind, _),
        open_indexed(behind.native, "far", here, IndexedSettings()) as records,
    ):
        yield Combined(records, behind.direct)


class Sources:
    """Transactions are in the store here."""

    def __init__(self, here: Back) -> None:
        self._here = here

    def back_of(self, stream: StreamRef) -> Back | None:
        return self._here if stream.basin == INTERNAL_BASIN else None


@asynccontextmanager
async def records(here: EmbeddedBack, there: EmbeddedBack) -> AsyncIterator[Back]:
    """A back of records only, as S2 servers are: Pravega's internal streams are in the embedded store."""
    async with open_bytes_on_records(RecordsOnly(there), "far", here, sources=Sources(here)) as back:
        yield back


BACKS: Final = [embedded, segment_back, records]


@pytest.fixture(params=BACKS, ids=lambda back: back.__name__)
async def site(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    threads_hold(autojump_clock, monkeypatch)
    async with (
        open_embedded(EmbeddedSettings(directory=tmp_path / "here"), Wall()) as here,
        open_embedded(EmbeddedSettings(directory=tmp_path / "there"), Wall()) as there,
        request.param(here, there) as far,
    ):
        for store in (here, there):
            for basin in (INTERNAL_BASIN, BASIN, "public-basin", "elsewhere"):
                await store.perform(EnsureBasin(basin))
        view = SwappableBack(routed(here, far, *ROUTES).for_listener("segment", SegmentNames()))
        async with serving(SegmentFront(view, SegmentSettings(read_hold_seconds=0.0))) as connect:
            made = Site(connect, here, tmp_path)
            await furnish(made)
            yield made


async def furnish(site: Site) -> None:
    """The owner's streams and what is beside them; and, behind the routes' back, things that no route takes."""
    with site.client("plant"):
        owner: Client = await site.connect()
        for name in (STREAM, *BESIDE, OWN):
            await owner.create(name)
            await owner.append(await owner.writer(name), 1, b"hello")
            await owner.expect(
                released.SegmentAttributeUpdated, released.UpdateSegmentAttribute(1, name, ATTRIBUTE, 5, -(1 << 63))
            )
        await owner.expect(released.SegmentCreated, released.CreateTableSegment(1, TABLE))
        put = released.UpdateTableEntries(1, TABLE, "", (TableEntry(KEY, b"value"),))
        await owner.expect(released.TableEntriesUpdated, put)
        await owner.stream.aclose()
    async with serving(SegmentFront(site.here)) as connect:
        unrouted: Client = await connect()
        await unrouted.create(UNROUTED)
        await unrouted.append(await unrouted.writer(UNROUTED), 1, b"hello")
        for name in (UNROUTED, "any text"):
            await unrouted.expect(released.SegmentCreated, released.CreateTableSegment(1, name))
        await unrouted.stream.aclose()


async def attacked(site: Site, identity: str, chosen: Callable[[Attack], bool]) -> list[tuple[str, str]]:
    """Make all attacks of this choice; those that were carried out."""
    tables = [TABLE, UNROUTED, *NO_SEGMENTS]
    carried_out = []
    with site.client(identity):
        for attack in attacks([STREAM, *BESIDE, *FRESH, *NO_SEGMENTS], tables):
            if chosen(attack) and await site.carried_out(attack):
                carried_out.append((attack.kind, attack.name))
    return carried_out


@pytest.mark.parametrize("identity", ["", "stranger"])
async def test_a_client_without_a_route_does_nothing_to_what_others_have(site: Site, identity: str) -> None:
    before = site.stored()
    assert await attacked(site, identity, lambda _: True) == []
    assert site.stored() == before


@pytest.mark.parametrize(("identity", "allowed"), [("reader", "read"), ("writer", "append")])
async def test_a_route_allows_no_more_beside_a_stream_than_on_it(site: Site, identity: str, allowed: str) -> None:
    def forbidden(attack: Attack) -> bool:
        if attack.needs == "manage" and attack.name in BESIDE:  # clients that append create and end transactions
            return allowed != "append"
        theirs = attack.name in (STREAM, *BESIDE, TABLE)
        into_own = attack.kind.startswith("Merge") and attack.name != STREAM
        return not (theirs and attack.needs in ("any", allowed)) or (into_own and allowed != "append")

    before = site.stored()
    assert await attacked(site, identity, forbidden) == []
    assert site.stored() == before


async def test_what_a_route_allows_is_done(site: Site) -> None:
    async def asked(identity: str, *messages: SegmentMessage) -> bool:
        with site.client(identity):
            return await site.carried_out(Attack("", "", "", list(messages)))

    transaction = BESIDE[0]
    for name in (STREAM, *BESIDE):
        assert await asked("reader", released.ReadSegment(name, 0, 100, "", 1))
    assert await asked("reader", released.ReadTable(1, TABLE, "", (KEY,)))
    assert await asked("writer", released.SetupAppend(1, WRITER, transaction), *APPENDS["AppendBlockEnd"])
    assert await asked("writer", released.UpdateTableEntries(1, TABLE, "", (TableEntry(KEY, b"more"),)))
    assert await asked("writer", released.MergeSegments(1, STREAM, transaction))
    assert await asked("plant", released.DeleteTableSegment(1, TABLE, False))
