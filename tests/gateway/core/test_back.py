"""Answers of a plain back, and of wrappers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from support.backs import PartialBack

from penstock.core.back import Back, BackWrapper, Destination, SwappableBack
from penstock.core.permissions import MANAGE
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Capability, CheckTail, FromSeqNum, Read
from penstock.model.records import StreamRef

STREAM = StreamRef("penstock", "orders")


def test_a_plain_back_has_no_other_abilities() -> None:
    back = PartialBack()
    assert back.passthrough("s2s", STREAM) is None
    assert back.access_token() is None
    assert back.destination(STREAM) == ("", "", STREAM)
    back.require(STREAM, MANAGE)
    back.require_some("penstock", "", MANAGE)
    back.require_all("penstock", "")


METHODS = [name for name, member in vars(Back).items() if inspect.isfunction(member)]


@pytest.mark.parametrize("name", METHODS)
def test_a_wrapper_delegates_each_method(name: str) -> None:
    """Also those that are added to `Back` later."""
    called: list[Any] = []

    def method(_back: Back, *args: object, **options: object) -> object:
        called.append((args, options))
        return called

    inner = type("Inner", (PartialBack,), {name: method})()
    given: list[object] = []
    options: dict[str, object] = {}
    for parameter in list(inspect.signature(getattr(Back, name)).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[parameter.name] = object()
        else:
            given.append(object())
    result = getattr(BackWrapper(inner), name)(*given, **options)
    assert called == [(tuple(given), options)]
    assert result is called or name.startswith(("require", "declare"))  # which return nothing


def test_a_wrapper_has_the_capabilities_of_the_back_behind_it() -> None:
    class Able(PartialBack):
        capabilities = frozenset({Capability.TRIM})

    assert BackWrapper(Able()).capabilities == {Capability.TRIM}


def test_a_wrapper_of_sessions_says_what_passes_it() -> None:
    with pytest.raises(TypeError, match="Forgetful overrides sessions, and must override passthrough"):

        class Forgetful(BackWrapper):
            def read_session(self, read: Read) -> Any:
                return self._inner.read_session(read)

    class Decided(BackWrapper):
        def read_session(self, read: Read) -> Any:
            return self._inner.read_session(read)

        def passthrough(self, protocol: str, stream: StreamRef) -> None:
            return None

    class Inherits(Decided):
        def append_session(self, *args: Any, **options: Any) -> Any:
            return self._inner.append_session(*args, **options)

    assert Inherits(PartialBack()).passthrough("s2s", STREAM) is None


def test_a_successors_back_is_used_from_now_on() -> None:
    class Named(PartialBack):
        def __init__(self, name: str) -> None:
            self.name = name

        def destination(self, stream: StreamRef) -> Destination:
            return Destination(self.name, "", stream)

        def read_session(self, read: Read) -> Any:
            return self.name

    back = SwappableBack(Named("old"))
    back.take_over(SwappableBack(Named("new")))
    assert back.destination(STREAM).route == "new"
    assert back.read_session(Read(STREAM, FromSeqNum(0))) == "new"


def test_operations_and_sessions_of_a_front_begin_with_a_check() -> None:
    """An exception of it refuses them."""

    def refuse() -> None:
        raise OperationFailed(Failure(FailureCode.RATE_LIMITED, "too many"))

    back = SwappableBack(PartialBack(), refuse)
    for begin in (
        lambda: back.perform(CheckTail(STREAM)),
        lambda: back.append_session(STREAM),
        lambda: back.read_session(Read(STREAM, FromSeqNum(0))),
        lambda: back.passthrough("s2", STREAM),
    ):
        with pytest.raises(OperationFailed, match="too many"):
            begin()
