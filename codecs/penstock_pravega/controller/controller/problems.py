"""The reasons for which the controller refuses requests.

Most calls have statuses of their own for common errors; `ControllerProblem` distinguishes these. All others travel as
`OperationFailed`, and so does a `ControllerRefusal` in calls that have no status for it.
"""

from __future__ import annotations

from enum import Enum

from penstock.model.failures import Failure, FailureCode, OperationFailed

__all__ = ["ControllerProblem", "ControllerRefusal"]


class ControllerProblem(Enum):
    """The reason; the value is its text, and the failure code for calls that have no status for it."""

    def __init__(self, words: str, code: FailureCode) -> None:
        self.words = words
        self.code = code

    SCOPE_NOT_FOUND = "there is no such scope", FailureCode.BASIN_NOT_FOUND
    SCOPE_EXISTS = "the scope exists", FailureCode.RESOURCE_ALREADY_EXISTS
    SCOPE_NOT_EMPTY = "the scope is not empty", FailureCode.INVALID
    STREAM_NOT_FOUND = "there is no such stream", FailureCode.STREAM_NOT_FOUND
    STREAM_EXISTS = "the stream exists", FailureCode.RESOURCE_ALREADY_EXISTS
    STREAM_SEALED = "the stream is sealed", FailureCode.STREAM_SEALED
    STREAM_NOT_SEALED = "the stream is not sealed", FailureCode.INVALID
    SEGMENT_NOT_FOUND = "the stream has no such segment", FailureCode.STREAM_NOT_FOUND
    TRANSACTION_NOT_FOUND = "there is no such transaction", FailureCode.STREAM_NOT_FOUND
    GROUP_NOT_FOUND = "there is no such reader group", FailureCode.STREAM_NOT_FOUND
    TABLE_NOT_FOUND = "there is no such key-value table", FailureCode.STREAM_NOT_FOUND
    TABLE_EXISTS = "the key-value table exists", FailureCode.RESOURCE_ALREADY_EXISTS
    WRITER_NOT_FOUND = "no writer of this name has noted a time", FailureCode.STREAM_NOT_FOUND
    TOO_MANY_WRITERS = "too many writers note times", FailureCode.QUOTA_EXHAUSTED
    INVALID_TIME = "the writer has noted a later time", FailureCode.INVALID
    GENERATION_MISMATCH = "the reader group has another generation", FailureCode.INVALID
    INVALID_NAME = "the name is not legal", FailureCode.INVALID
    INVALID_CUT = "this is not a stream cut of the stream", FailureCode.INVALID
    INVALID_CONFIG = "the configuration is not possible", FailureCode.INVALID
    SCALE_REFUSED = "the stream cannot be scaled like this", FailureCode.INVALID
    NOT_CURRENT = "these are not current segments of the stream", FailureCode.INVALID
    LEASE_TOO_LARGE = "the lease is too long", FailureCode.INVALID
    TOO_MANY = "too many transactions of the stream are open", FailureCode.QUOTA_EXHAUSTED
    TOO_OLD = "the transaction has been open for too long", FailureCode.INVALID


class ControllerRefusal(OperationFailed):
    """A request that is not executed; `detail` adds to the problem's own text."""

    def __init__(self, problem: ControllerProblem, detail: str) -> None:
        super().__init__(Failure(problem.code, f"{problem.words}: {detail}"))
        self.problem = problem
