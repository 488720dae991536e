"""The nature of each failure: retries, and side effects."""

from __future__ import annotations

from penstock.model.failures import Failure, FailureCode

C = FailureCode

# Written out once more, so that a slip in the table is seen: clients decide by it whether to send an append twice.
UNTOUCHED = {C.TRANSACTION_CONFLICT, C.RATE_LIMITED, C.HOT_SERVER, C.SERVER_DRAINING}
UNKNOWN = {C.REQUEST_TIMEOUT, C.OTHER, C.STORAGE, C.UNAVAILABLE, C.UPSTREAM_TIMEOUT, C.UPSTREAM_FAULT}


def test_what_may_succeed_later_and_what_may_have_been_done() -> None:
    assert {code for code in C if Failure(code, "").retryable} == UNTOUCHED | UNKNOWN
    assert {code for code in C if Failure(code, "").side_effect_possible} == UNKNOWN | {C.CLIENT_HANGUP}
