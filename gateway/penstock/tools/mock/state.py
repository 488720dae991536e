"""The state that all mock servers of a run share."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.model.records import StreamRef
from penstock.net.upstream import Upstream
from penstock.tools.mock.answers import AnswerBook
from penstock.tools.mock.fork import stream_recorded_as
from penstock.tools.mock.naming import normalized_test
from penstock.tools.mock.origins import Origins
from penstock.tools.mock.report import MockReport

__all__ = ["MockState"]


class MockState(msgspec.Struct):
    """The state of a run. `test`: the one that asks now, normalized, "" for none; `origins`: the servers that answer
    misses, None to refuse them; `forked`: the streams of the fork, and `forks`: its listeners by protocol."""

    book: AnswerBook
    report: MockReport
    origins: Origins | None = None
    forked: frozenset[StreamRef] = frozenset()
    forks: Mapping[str, Upstream] = msgspec.field(default_factory=dict)
    test: str = ""
    tests: set[str] = msgspec.field(default_factory=lambda: {""})
    """All tests of the run so far."""

    def begin_test(self, name: str) -> None:
        """Answer for this test from now on; "" for none."""
        self.test = normalized_test(name)
        self.tests.add(self.test)

    def report_now(self) -> MockReport:
        """Return the report, with what the tests so far have never asked and where misses were recorded."""
        self.report.never_asked = self.book.never_asked(self.tests)
        self.report.unplayable = self.book.unplayable
        self.report.recorded_into = [] if self.origins is None else self.origins.recorded
        return self.report

    def fork_of(self, protocol: str, stream: str) -> Upstream | None:
        """Return the fork's listener if it serves the stream, which is spelled as in a recording."""
        return self.forks.get(protocol) if stream_recorded_as(protocol, stream) in self.forked else None

    async def origin(self, protocol: str, test: str) -> Upstream | None:
        """Return the server that answers a miss; None if it is to be refused."""
        return None if self.origins is None else await self.origins.upstream(protocol, test)
