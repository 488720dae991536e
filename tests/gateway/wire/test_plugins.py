"""Every registered codec keeps the laws, and the registry is honest about what it finds."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import conformance, plugins
from penstock.wire.codec import CodecPlugin, Role, installed_codecs

ENDS = [
    pytest.param(plugin, role, dialect, id=f"{name}-{role.value}-{dialect}")
    for name, plugin in sorted(installed_codecs().items())
    for role in Role
    for dialect in plugin.dialects
]


@st.composite
def near_misses(draw: st.DrawFn, sample: bytes) -> bytes:
    """The sample with a few bytes replaced, removed, doubled or put in."""
    data = bytearray(sample)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 4)))
        data[at:until] = draw(st.one_of(st.just(b""), st.just(bytes(data[at:until]) * 2), st.binary(max_size=4)))
    return bytes(data)


def test_the_protocols_that_are_here_are_registered() -> None:
    assert set(installed_codecs()) == {"durable", "kafka", "s2s", "sse", "s3p", "segment"}


@pytest.mark.parametrize(("plugin", "role", "dialect"), ENDS)
@given(data=st.data())
def test_law_1_cut_anywhere(plugin: CodecPlugin, role: Role, dialect: str, data: st.DataObject) -> None:
    sample = plugin.sample(role, dialect)
    cuts = data.draw(st.lists(st.integers(0, len(sample)), max_size=8))
    conformance.cut_anywhere(partial(plugin.make, role, dialect), sample, cuts)


@pytest.mark.parametrize(("plugin", "role", "dialect"), ENDS)
@given(data=st.data())
def test_laws_1_and_2_near_misses(plugin: CodecPlugin, role: Role, dialect: str, data: st.DataObject) -> None:
    wrong = data.draw(near_misses(plugin.sample(role, dialect)))
    make = partial(plugin.make, role, dialect)
    conformance.no_surprise(make, wrong)
    conformance.cut_anywhere(make, wrong, data.draw(st.lists(st.integers(0, len(wrong)), max_size=4)))


@pytest.mark.parametrize(("plugin", "role", "dialect"), ENDS)
@given(garbage=st.binary(max_size=200))
def test_law_2_garbage(plugin: CodecPlugin, role: Role, dialect: str, garbage: bytes) -> None:
    conformance.no_surprise(partial(plugin.make, role, dialect), garbage)


@pytest.mark.parametrize(("plugin", "role", "dialect"), ENDS)
@given(data=st.data())
def test_law_3_bounded(plugin: CodecPlugin, role: Role, dialect: str, data: st.DataObject) -> None:
    start = plugin.sample(role, dialect)
    start = start[: data.draw(st.integers(0, len(start)))]
    filler = data.draw(st.sampled_from([b"\x00", b"\xff", b"a", b"1", b"$", b"*", b"\r\n", b"data: x"]))
    conformance.bounded(partial(plugin.make, role, dialect), start + filler * 20_000, plugin.limit)


@pytest.mark.parametrize(("plugin", "role", "dialect"), ENDS)
@given(data=st.data())
def test_law_4_prefix(plugin: CodecPlugin, role: Role, dialect: str, data: st.DataObject) -> None:
    sample = plugin.sample(role, dialect)
    length = data.draw(st.integers(0, len(sample)))
    conformance.prefix(partial(plugin.make, role, dialect), sample, length)


def entries(*loaded: object) -> Callable[..., list[EntryPoint]]:
    """Stands for the installed distributions' entry points."""

    class Entry(EntryPoint):
        def load(self) -> object:
            return loaded[int(self.value)]

    return lambda group: [Entry("mine", str(index), group) for index in range(len(loaded))]


def test_an_entry_point_that_is_no_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", entries(object()))
    with pytest.raises(TypeError, match="entry point mine = 0 in some_group is not a CodecPlugin"):
        plugins.installed("some_group", CodecPlugin)


def test_two_plugins_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = installed_codecs()["s3p"]
    monkeypatch.setattr(plugins, "entry_points", entries(plugin, plugin))
    with pytest.raises(ValueError, match="two installed distributions register 'mine' in another_group"):
        plugins.installed("another_group", CodecPlugin)
