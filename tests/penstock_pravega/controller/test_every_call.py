"""Every call of the controller by clients that no route is for: nothing changes, and nothing is told."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.controller import BASIN, NAMES, event, segments, settings, write
from support.routing import routed
from support.store import Wall

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import SwappableBack
from penstock.core.identity import CLIENT, Client
from penstock.model.failures import FailureCode, OperationFailed
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.records import KeyValueTable, ReaderGroup
from penstock_pravega.controller.front.calls import CallContext
from penstock_pravega.controller.front.front import CALLS
from penstock_proto import pravega_controller_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
OWNED: Final = ("tiny", "scope-of-streams")
"""The owner's scopes: the first is no basin's name, the second is one."""
TABLE: Final = KeyValueTable(partitions=1, primary_key_length=4)
GROUP: Final = ReaderGroup(0, 0, 0, 0, 0, "id", (), (), 0)
ROUTES: Final = (
    RouteTable(name="tiny", basin=BASIN, match="prefix", stream="tiny/", identity=("owner",)),
    RouteTable(name="basin", basin="scope-of-streams", identity=("owner",)),
    RouteTable(name="tiny-readers", basin=BASIN, match="prefix", stream="tiny/", identity=("reader",), allow=("read",)),
    RouteTable(name="basin-readers", basin="scope-of-streams", identity=("reader",), allow=("read",)),
    RouteTable(name="strangers", basin=BASIN, match="prefix", stream="public/", identity=("stranger",)),
)
OF_NOTHING: Final = {
    *("getControllerServerList", "getURI", "getDelegationToken"),
    *("listScopes", "checkScopeExists", "checkStreamExists"),
}
"""Calls that are open to every client, and whose results are checked separately."""
REFUSED: Final = {FailureCode.PERMISSION_DENIED, FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND}
_WORDS: Final = {
    "scope": lambda scope: scope,
    "stream": lambda _: "stream",
    "kvtName": lambda _: "table",
    "readerGroup": lambda _: "readers",
    "readerGroupName": lambda _: "readers",
    "readerGroupId": lambda _: "id",
    "subscriber": lambda scope: f"{scope}/readers",
    "writer": lambda _: "writer",
}
_NUMBERS: Final = {
    "minNumSegments": 2,
    "partitionCount": 2,
    "primaryKeyLength": 4,
    "lease": 1000,
    "sealedSegments": 0,
    "end": 1.0,
}


def fill(message: Any, scope: str, transaction: pb.TxnId) -> Any:
    """Fill a request so that it speaks of the owner's stream, group and transaction."""
    for field in message.DESCRIPTOR.fields:
        repeated = field.is_repeated
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value[0] = 13
        elif field.message_type is not None:
            inner = value.add() if repeated else value
            inner.CopyFrom(transaction) if isinstance(inner, pb.TxnId) else fill(inner, scope, transaction)
            if not repeated:
                inner.SetInParent()
        elif field.type == FieldDescriptor.TYPE_STRING and field.name in _WORDS:
            setattr(message, field.name, _WORDS[field.name](scope))
        elif field.name in _NUMBERS:
            value.append(_NUMBERS[field.name]) if repeated else setattr(message, field.name, _NUMBERS[field.name])
    return message


@contextmanager
def client(identity: str) -> Iterator[None]:
    before = CLIENT.set(Client(identity))
    try:
        yield
    finally:
        CLIENT.reset(before)


class Site:
    def __init__(self, controller: Controller, directory: Path) -> None:
        self.controller = controller
        self._directory = directory
        self.transactions: dict[str, pb.TxnId] = {}

    def stored(self) -> list[str]:
        """All that is in the store's file."""
        (path,) = self._directory.glob("*.sqlite3")
        with sqlite3.connect(path) as db:
            found = list(db.iterdump())
        db.close()
        return found

    async def call(self, name: str, scope: str) -> Message:
        request = GetMessageClass(SERVICE.methods_by_name[name].input_type)()
        context: Any = SimpleNamespace(authority="localhost:9090")
        call = CallContext(self.controller, settings(), context)
        return await CALLS[name](call, fill(request, scope, self.transactions[scope]))

    async def carried_out(self, name: str, scope: str) -> bool:
        """Return whether a call succeeded; any failure must be a refusal."""
        try:
            answer: Any = await self.call(name, scope)
        except OperationFailed as error:
            assert error.failure.code in REFUSED, (name, error)
            return False
        field = next((one for one in ("status", "result") if one in answer.DESCRIPTOR.fields_by_name), None)
        assert field is not None, f"{name}: {answer}"
        return int(getattr(answer, field)) == 0


@pytest.fixture
async def site(back: EmbeddedBack, wall: Wall, tmp_path: Path) -> AsyncIterator[Site]:
    view = SwappableBack(routed(back, back, *ROUTES).for_listener("controller", NAMES))
    made = Site(Controller(view, settings(), wall), tmp_path / "data")
    with client("owner"):
        for scope in OWNED:
            await made.controller.scopes.create(scope)
            await made.controller.streams.create(scope, "stream", segments(2))
            await write(back, scope, "stream", event(b"early"))
            await made.controller.groups.create(scope, "readers", GROUP)
            await made.controller.tables.create(scope, "table", TABLE)
            transaction, _ = await made.controller.transactions.create(scope, "stream", 1000)
            made.transactions[scope] = pb.TxnId(highBits=transaction.high, lowBits=transaction.low)
    yield made


@pytest.mark.parametrize("scope", OWNED)
@pytest.mark.parametrize("identity", ["", "stranger"])
async def test_calls_about_what_others_have(site: Site, scope: str, identity: str) -> None:
    before = site.stored()
    with client(identity):
        carried_out = [name for name in CALLS if name not in OF_NOTHING and await site.carried_out(name, scope)]
        scopes: Any = await site.call("listScopes", scope)
        exists: Any = await site.call("checkScopeExists", scope)
    assert carried_out == []
    assert not {*OWNED} & {*scopes.scopes} and not exists.exists
    assert site.stored() == before


@pytest.mark.parametrize("scope", OWNED)
async def test_calls_that_change_what_is_for_reading(site: Site, scope: str) -> None:
    asked = {*CALLS} - OF_NOTHING
    questions = {name for name in asked if name.startswith(("get", "list", "check", "is"))}
    before = site.stored()
    with client("reader"):
        carried_out = {name for name in asked - questions if await site.carried_out(name, scope)}
    assert carried_out <= {"createReaderGroup"}  # a group that is there is told
    assert site.stored() == before


@pytest.mark.parametrize("identity", ["", "stranger", "reader"])
async def test_a_scope_that_no_route_is_for_is_not_made(site: Site, identity: str) -> None:
    before = site.stored()
    with client(identity):
        for scope in ("nowhere", "nowhere-at-all"):
            with pytest.raises(OperationFailed) as refused:
                await site.controller.scopes.create(scope)
            assert refused.value.failure.code in REFUSED
    assert site.stored() == before
