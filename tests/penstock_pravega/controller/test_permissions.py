"""The controller refuses operations that routes do not allow the client, and records nothing of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from support.controller import NAMES, SCOPE, RefusedWith, content, event, info, segments, settings, write
from support.routing import routed
from support.store import Wall

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back, SwappableBack
from penstock.core.identity import CLIENT, Client
from penstock.model.failures import FailureCode, OperationFailed
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import ReaderGroup, TransactionState
from penstock_pravega.controller.controller.topology import KeyRange
from penstock_pravega.controller.controller.transactions import TransactionId

OWN = RouteTable(name="own", match="prefix", stream=f"{SCOPE}/", identity=("owner",))
OTHERS = RouteTable(name="others", match="prefix", stream="other/", identity=("stranger",))

GROUP = ReaderGroup(0, 0, 0, 0, 0, "", (), (), 0)

Asked = Callable[[Controller], Awaitable[object]]
CHANGES: dict[str, Asked] = {
    "update": lambda controller: controller.streams.update(SCOPE, "stream", segments(3)),
    "truncate": lambda controller: controller.streams.truncate(SCOPE, "stream", {0: 13, 1: 0}),
    "seal": lambda controller: controller.streams.seal(SCOPE, "stream"),
    "delete": lambda controller: controller.streams.delete(SCOPE, "stream"),
    "scale": lambda controller: controller.scaling.scale(
        SCOPE, "stream", [0], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)]
    ),
    "create": lambda controller: controller.streams.create(SCOPE, "another", segments(2)),
    "transaction": lambda controller: controller.transactions.create(SCOPE, "stream", 1000),
    "scope": lambda controller: controller.deletion.delete(SCOPE),
    "everything": lambda controller: controller.deletion.delete_all(SCOPE),
}
QUESTIONS: dict[str, Asked] = {
    "current": lambda controller: controller.queries.current(SCOPE, "stream"),
    "head": lambda controller: controller.queries.at_head(SCOPE, "stream"),
    "exists": lambda controller: controller.queries.exists(SCOPE, "stream"),
    "configuration": lambda controller: controller.queries.configuration(SCOPE, "stream"),
}


@contextmanager
def client(identity: str) -> Iterator[None]:
    before = CLIENT.set(Client(identity))
    try:
        yield
    finally:
        CLIENT.reset(before)


@contextmanager
def denied() -> Iterator[None]:
    with pytest.raises(OperationFailed) as refused:
        yield
    assert refused.value.failure.code is FailureCode.PERMISSION_DENIED, refused.value


@pytest.fixture
def routes() -> tuple[RouteTable, ...]:
    return OWN, OTHERS


@pytest.fixture
async def guarded(back: EmbeddedBack, wall: Wall, routes: tuple[RouteTable, ...]) -> Controller:
    """A controller as clients have it, and a stream of the owner's of two segments, with an event in the first."""
    view: Back = SwappableBack(routed(back, back, *routes).for_listener("controller", NAMES))
    controller = Controller(view, settings(), wall)
    with client("owner"):
        if not await controller.scopes.exists(SCOPE):
            await controller.scopes.create(SCOPE)
        await controller.streams.create(SCOPE, "stream", segments(2))
    await write(back, SCOPE, "stream", event(b"early"))
    return controller


async def as_it_was(controller: Controller, back: EmbeddedBack) -> None:
    with client("owner"):
        assert [one.id for one in await controller.queries.current(SCOPE, "stream")] == [0, 1]
        assert [(one.id, at) for one, at in await controller.queries.at_head(SCOPE, "stream")] == [(0, 0), (1, 0)]
        assert (await controller.queries.configuration(SCOPE, "stream")).segments == 2
        assert not await controller.queries.exists(SCOPE, "another")
    assert await content(back, SCOPE, "stream") == event(b"early")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("identity", ["stranger", ""])
async def test_who_is_not_admitted_changes_nothing(
    guarded: Controller, back: EmbeddedBack, change: str, identity: str
) -> None:
    with client(identity), denied():
        await CHANGES[change](guarded)
    await as_it_was(guarded, back)


@pytest.mark.parametrize("question", QUESTIONS)
async def test_who_is_not_admitted_learns_nothing(guarded: Controller, question: str) -> None:
    with client("stranger"), denied():
        await QUESTIONS[question](guarded)
    with client("owner"):
        assert await guarded.listing.streams(SCOPE, "", with_groups=True) == ["stream"]
        assert SCOPE in await guarded.scopes.page("", 10)
    with client("stranger"), RefusedWith(ControllerProblem.SCOPE_NOT_FOUND):
        await guarded.listing.streams(SCOPE, "", with_groups=True)
    with client("stranger"):
        assert SCOPE not in await guarded.scopes.page("", 10)


async def test_transactions_are_their_streams_clients(guarded: Controller, back: EmbeddedBack) -> None:
    with client("owner"):
        transaction, _ = await guarded.transactions.create(SCOPE, "stream", 1000)
    asked: list[Callable[[TransactionId], Awaitable[object]]] = [
        lambda one: guarded.transactions.commit(SCOPE, "stream", one),
        lambda one: guarded.transactions.abort(SCOPE, "stream", one),
        lambda one: guarded.transactions.ping(SCOPE, "stream", one, 1000),
        lambda one: guarded.transactions.state(SCOPE, "stream", one),
        lambda _: guarded.transactions.completed(SCOPE, "stream"),
    ]
    for ask in asked:
        with client("stranger"), denied():
            await ask(transaction)
    with client("owner"):
        assert await guarded.transactions.state(SCOPE, "stream", transaction) is TransactionState.OPEN


async def test_the_gateway_finishes_what_clients_have_begun(
    guarded: Controller, wall: Wall, back: EmbeddedBack
) -> None:
    """Routes for identities admit the gateway itself, which then acts for no client."""
    with client("owner"):
        transaction, _ = await guarded.transactions.create(SCOPE, "stream", 1000)
    wall.now += 10_000
    await guarded.transactions.sweep()
    with client("owner"):
        assert await guarded.transactions.state(SCOPE, "stream", transaction) is TransactionState.ABORTING
    before = CLIENT.set(Client(gateway=True))
    await guarded.transactions.sweep()
    CLIENT.reset(before)
    with client("owner"):
        assert await guarded.transactions.state(SCOPE, "stream", transaction) is TransactionState.ABORTED
    assert await info(back, SCOPE, "stream", suffix=f"#transaction.{transaction}") is None


async def test_reader_groups_of_others(guarded: Controller) -> None:
    with client("owner"):
        group = await guarded.groups.create(SCOPE, "readers", GROUP)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: guarded.groups.create(SCOPE, "readers", GROUP),
        lambda: guarded.groups.get(SCOPE, "readers"),
        lambda: guarded.groups.update(SCOPE, "readers", group),
        lambda: guarded.groups.delete(SCOPE, "readers", ""),
    ]
    for ask in asked:
        with client("stranger"), denied():
            await ask()
    with client("owner"):
        assert await guarded.groups.get(SCOPE, "readers") == group


async def test_who_may_only_read_and_append_manages_nothing(
    guarded: Controller, back: EmbeddedBack, wall: Wall
) -> None:
    kept = RouteTable(name="kept", match="prefix", stream=f"{SCOPE}/", allow=("read", "append"))
    limited = Controller(routed(back, back, kept).for_listener("controller", NAMES), settings(), wall)
    for name, change in CHANGES.items():
        if name != "transaction":
            with denied():
                await change(limited)
    await as_it_was(guarded, back)
    transaction, _ = await limited.transactions.create(SCOPE, "stream", 1000)
    await write(back, SCOPE, "stream", event(b"late"), suffix=f"#transaction.{transaction}")
    await limited.transactions.commit(SCOPE, "stream", transaction)
    assert await content(back, SCOPE, "stream") == event(b"early") + event(b"late")
