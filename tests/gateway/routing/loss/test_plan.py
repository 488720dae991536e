"""The plan of a route is what its back can do, and says so of every pair."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest

from penstock.app.config import BackTable, kind_of_back
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.protocols.back_opening import BackContext
from penstock.protocols.plugin import back_kinds
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.routing.loss.plan import EMBEDDED_SIDE, BackSide, Fate, FrontSide, plan_losses
from penstock_durable.config import DurableBackLoss, DurableBackTable
from penstock_pravega.segment.config import SegmentBackLoss, SegmentBackTable
from penstock_pravega.segment.report import SegmentSide
from penstock_s2.config import S2BackTable, S2SseBackTable
from penstock_s2.report import S2Side
from penstock_s3p.config import S3PBackLimits, S3PBackLoss, S3PBackTable
from penstock_s3p.report import S3PSide

ENVELOPES = {"headers": "envelope", "empty_body": "envelope", "command_records": "envelope"}
TABLES: list[BackTable] = [
    S2BackTable(address="127.0.0.1:1"),
    S2SseBackTable(address="127.0.0.1:1"),
    S3PBackTable(address="127.0.0.1:1"),
    S3PBackTable(address="127.0.0.1:1", loss=S3PBackLoss(**ENVELOPES)),
    S3PBackTable(address="127.0.0.1:1", loss=S3PBackLoss(headers="drop")),
    SegmentBackTable(address="127.0.0.1:1"),
    SegmentBackTable(controller="127.0.0.1:1", loss=SegmentBackLoss(**ENVELOPES)),
    SegmentBackTable(controller="127.0.0.1:1", loss=SegmentBackLoss(headers="drop", empty_body="keep")),
    SegmentBackTable(address="127.0.0.1:1", dialect="draft"),
    DurableBackTable(address="127.0.0.1:1"),
    DurableBackTable(address="127.0.0.1:1", create_as="json", delivery="refuse"),
    DurableBackTable(address="127.0.0.1:1", loss=DurableBackLoss(headers="drop")),
    DurableBackTable(address="127.0.0.1:1", create_as="json", loss=DurableBackLoss(headers="drop")),
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{kind_of_back(table)}-{TABLES.index(table)}")
async def test_what_is_known_of_a_kind_is_what_its_targets_can_do(table: BackTable, tmp_path: object) -> None:
    """Without a connection: that is what makes the plan of an unreachable server true."""
    settings = EmbeddedSettings(directory=tmp_path)  # type: ignore[arg-type]
    kind = back_kinds()[kind_of_back(table)]
    async with (
        open_embedded(settings) as embedded,
        kind.open(BackContext(embedded=embedded), "far", table) as target,
    ):
        assert back_side(table).capabilities == target.capabilities


async def test_the_embedded_store_can_do_everything(tmp_path: object) -> None:
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as embedded:  # type: ignore[arg-type]
        assert EMBEDDED_SIDE.capabilities == embedded.capabilities


def back_side(table: BackTable | None) -> BackSide:
    return EMBEDDED_SIDE if table is None else back_kinds()[kind_of_back(table)].side(table)


KEEP = LossPolicy(Loss.ENVELOPE, Loss.ENVELOPE, Loss.ENVELOPE)
FRONTS = [S2Side(), S3PSide(LossPolicy()), SegmentSide(KEEP)]


def fates(front: FrontSide, table: BackTable | None) -> dict[str, Fate]:
    return {item.what: item.fate for item in plan_losses(front, back_side(table)).appends}


@pytest.mark.parametrize(("front", "table"), list(product(FRONTS, [None, *TABLES])))
def test_every_pair_has_a_plan(front: FrontSide, table: BackTable | None) -> None:
    found = plan_losses(front, back_side(table))
    assert found.appends and found.reads and found.guarantee
    for items in (found.appends, found.reads):
        assert len({item.what for item in items}) == len(items), "each thing is said once"


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: type(front).__name__)
def test_a_source_is_only_read(front: FrontSide) -> None:
    found = plan_losses(front, back_side(TABLES[1]))
    assert [(item.what, item.fate) for item in found.appends] == [("everything", Fate.REFUSED)]
    assert found.guarantee == ("nothing is appended",)


def test_what_a_body_cannot_carry_goes_by_the_backs_table() -> None:
    s2 = FRONTS[0]
    assert fates(s2, S2BackTable(address="a:1"))["headers"] is Fate.KEPT
    refusing = fates(s2, S3PBackTable(address="a:1"))
    assert [refusing[what] for what in ("headers", "empty bodies", "command records")] == [Fate.REFUSED] * 3
    mixed = fates(s2, SegmentBackTable(address="a:1", loss=SegmentBackLoss(headers="drop", empty_body="keep")))
    assert [mixed[what] for what in ("headers", "empty bodies", "command records")] == [
        Fate.DROPPED,
        Fate.KEPT,
        Fate.REFUSED,
    ]
    assert mixed["match_seq_num"] is Fate.KEPT and mixed["fencing_token"] is Fate.REFUSED
    draft = fates(s2, SegmentBackTable(address="a:1", dialect="draft"))
    assert draft["match_seq_num"] is Fate.REFUSED
    assert fates(FRONTS[2], S3PBackTable(address="a:1", loss=S3PBackLoss(headers="drop")))["headers in envelopes"] is (
        Fate.REFUSED
    )
    segments = fates(FRONTS[2], SegmentBackTable(address="a:1", dialect="draft"))
    assert segments["transactions"] is Fate.REFUSED
    assert segments["events of clients of the released dialect"] is Fate.REFUSED


def test_what_a_server_of_durable_streams_holds_goes_by_its_streams_and_its_table() -> None:
    def of(create_as: Literal["records", "json"], headers: Literal["refuse", "drop"]) -> list[Fate]:
        table = DurableBackTable(address="a:1", create_as=create_as, loss=DurableBackLoss(headers=headers))
        by_feature = fates(FRONTS[0], table)
        return [by_feature[what] for what in ("headers", "empty bodies", "command records")]

    assert of("records", "refuse") == [Fate.KEPT, Fate.KEPT, Fate.REFUSED]
    assert of("json", "refuse") == [Fate.REFUSED] * 3
    assert of("records", "drop") == [Fate.DROPPED, Fate.KEPT, Fate.REFUSED]
    assert of("json", "drop") == [Fate.DROPPED, Fate.REFUSED, Fate.REFUSED]


def test_a_fence_that_is_kept_but_not_enforced_is_reported() -> None:
    commands = [item for item in plan_losses(FRONTS[0], back_side(TABLES[3])).appends if item.what == "command records"]
    assert [item.fate for item in commands] == [Fate.ENVELOPED]
    assert "a fence is stored as data and fences no writer" in commands[0].how


def test_a_smaller_server_is_said() -> None:
    small = S3PBackTable(address="a:1", limits=S3PBackLimits(max_record_bytes=1000))
    assert fates(FRONTS[1], small)["bodies of more than 1000 bytes"] is Fate.REFUSED


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "exactly once: there is no connection to lose"),
        (S2BackTable(address="a:1"), "exactly once: after a lost acknowledgement the gateway looks for"),
        (S2BackTable(address="a:1", delivery="at-least-once"), "at least once"),
        (S2BackTable(address="a:1", delivery="refuse"), "at most once for each try"),
        (S3PBackTable(address="a:1"), "at most once for each try"),
        (S3PBackTable(address="a:1", delivery="at-least-once"), "at least once"),
        (SegmentBackTable(address="a:1"), "exactly once: after a lost acknowledgement the gateway asks"),
        (SegmentBackTable(address="a:1", delivery="at-least-once"), "exactly once"),
        (SegmentBackTable(address="a:1", delivery="refuse"), "at most once for each try"),
    ],
)
def test_the_guarantee(table: BackTable | None, words: str) -> None:
    assert plan_losses(FRONTS[1], back_side(table)).guarantee[0].startswith(words)


def test_who_speaks_s2s_to_s2_has_the_clients_guarantee_too() -> None:
    said = plan_losses(FRONTS[0], back_side(S2BackTable(address="a:1"))).guarantee
    assert len(said) == 2 and "pass through untouched" in said[1]
