"""Runs the conformance cases of a protocol against a server, one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from enum import Enum
from typing import Any, Final

import msgspec
import trio

from penstock.core.errors import CannotStart
from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.net.tls import ClientTls
from penstock.protocols.conformance import (
    ConformanceCase,
    Deviation,
    NotApplicable,
    Suite,
    TestedServer,
)
from penstock.protocols.servers import Server
from penstock.tools.target.back import TargetOptions

__all__ = ["CaseOutcome", "CaseResult", "chosen_cases", "reached_server", "run_cases"]

_CASE_SECONDS: Final = 60.0
"""Seconds that one case may take; each wait within it has a shorter bound."""


class CaseOutcome(Enum):
    """The outcome of a case. The values are those of `penstock conform --json`."""

    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"


class CaseResult(msgspec.Struct, frozen=True):
    """A case with its outcome. `reason`: why it is not PASS, else ""."""

    case: ConformanceCase[Any]
    outcome: CaseOutcome
    reason: str = ""


def chosen_cases(suite: Suite, only: Sequence[str]) -> list[ConformanceCase[Any]]:
    """Return the cases that `only` selects: by a clause with its subclauses, or by a case's name. Empty: all.

    Raises ValueError for a value that selects none.
    """
    chosen: list[ConformanceCase[Any]] = []
    for choice in only:
        cases = [case for case in suite.cases if choice == case.name or f"{case.clause}.".startswith(f"{choice}.")]
        if not cases:
            raise ValueError(f"{choice!r}: neither a clause nor a case; --list prints them")
        chosen += cases
    return [case for case in suite.cases if case in chosen] if only else list(suite.cases)


def reached_server(server: Server, options: TargetOptions, patience: float) -> TestedServer:
    """Return how to reach a server, which must answer within `patience` seconds.

    Raises CannotStart for TLS files that cannot be used.
    """
    files = (options.tls_ca, options.tls_certificate, options.tls_key)
    return TestedServer(
        address=server.address,
        tls=ClientTls(*files) if server.tls else None,
        token=options.token,
        space=server.space,
        patience=patience,
    )


async def run_cases(
    suite: Suite, server: TestedServer, cases: Sequence[ConformanceCase[Any]]
) -> AsyncGenerator[CaseResult, None]:
    """Run the cases, and yield the result of each when it is there. Raises CannotStart if the server cannot be
    connected to at the beginning."""
    try:
        await trio.aclose_forcefully(await server.connect())
    except (OSError, Deviation) as error:
        raise CannotStart(f"cannot connect to {server.address}: {error}") from None
    for case in cases:
        yield await _run(suite, server, case)


async def _run(suite: Suite, server: TestedServer, case: ConformanceCase[Any]) -> CaseResult:
    try:
        with trio.fail_after(_CASE_SECONDS):
            async with suite.session(server) as session:
                await case.run(session)
    except Exception as error:
        return _judged(case, error)
    return CaseResult(case, CaseOutcome.PASS)


def _judged(case: ConformanceCase[Any], error: Exception) -> CaseResult:
    """Return the result of a case that raised. Raises the error unless it is the server's doing: an answer that the
    codecs refuse, or a lost connection."""
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    match first:
        case NotApplicable():
            return CaseResult(case, CaseOutcome.NOT_APPLICABLE, str(first))
        case Deviation() | RemoteProtocolError() | OperationFailed():
            return CaseResult(case, CaseOutcome.FAIL, str(first))
        case trio.TooSlowError():
            return CaseResult(case, CaseOutcome.FAIL, f"the case took more than {_CASE_SECONDS:.0f} s")
        case OSError() | trio.BrokenResourceError() | EOFError():
            return CaseResult(case, CaseOutcome.FAIL, f"the connection was lost: {first or type(first).__name__}")
        case LookupError() | TypeError() | ValueError():
            return CaseResult(case, CaseOutcome.FAIL, f"the answer has another form: {type(first).__name__} {first}")
    raise error
