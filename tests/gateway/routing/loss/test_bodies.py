"""Records on servers that have bodies and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import Header
from penstock.routing.loss.bodies import to_bodies, to_records
from penstock.routing.loss.loss import Loss, LossPolicy

REFUSE = LossPolicy(command_records=Loss.REFUSE)
ENVELOPE = LossPolicy(headers=Loss.ENVELOPE, empty_body=Loss.ENVELOPE, command_records=Loss.ENVELOPE)
NAMED = (Header(b"name", b"value"),)
FENCE = (Header(b"", b"fence"),)
BODIES = st.one_of(st.binary(max_size=5), st.binary(max_size=5).map(lambda body: ENVELOPE_MARK + body))


@given(st.lists(st.tuples(st.sampled_from([(), NAMED, FENCE]), BODIES), max_size=5))
def test_envelopes_bring_everything_back(records: list[tuple[tuple[Header, ...], bytes]]) -> None:
    bodies = [body for _, body in records]
    headers = {index: some for index, (some, _) in enumerate(records) if some}
    carried = to_bodies(bodies, headers, ENVELOPE, "back x")
    assert all(carried)
    assert to_records(carried, ENVELOPE) == (bodies, headers)


@pytest.mark.parametrize(
    ("headers", "body", "key"),
    [(NAMED, b"x", "loss.headers"), (FENCE, b"x", "loss.command_records"), ((), b"", "loss.empty_body")],
)
def test_refusals(headers: tuple[Header, ...], body: bytes, key: str) -> None:
    with pytest.raises(OperationFailed, match=f"record 2 of the batch .* back x .*{key}") as caught:
        to_bodies([b"fine", body], {1: headers} if headers else {}, REFUSE, "back x")
    assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE


def test_headers_are_dropped() -> None:
    policy = LossPolicy(headers=Loss.DROP, command_records=Loss.REFUSE)
    assert to_bodies([b"x"], {0: NAMED}, policy, "back x") == [b"x"]
    with pytest.raises(OperationFailed, match="empty body"):
        to_bodies([b""], {0: NAMED}, policy, "back x")
    assert to_bodies([b""], {0: NAMED}, policy, "back x", keep_empty=True) == [b""]


def test_what_others_appended() -> None:
    """Without envelopes nothing is unwrapped; with them what is none stays what it is."""
    envelope = wrap(NAMED, b"x")
    assert to_records([envelope], REFUSE) == ([envelope], {})
    assert to_records([ENVELOPE_MARK, b"plain", envelope], ENVELOPE) == ([ENVELOPE_MARK, b"plain", b"x"], {2: NAMED})
