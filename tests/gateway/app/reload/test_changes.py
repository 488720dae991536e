"""Differences between two configurations, and which of them need a restart."""

from __future__ import annotations

import pytest

from penstock.app.config import Config, parse_config
from penstock.app.reload import changes, check_changes
from penstock.core.errors import CannotReload

BEFORE = """
[[listeners.s2]]
[[listeners.s2]]
name = "public"
bind = "127.0.0.1:1"
[listeners.segment]
[listeners.controller]
[store]
directory = "here"
[[store.basins]]
name = "penstock"
[[routes]]
name = "a"
basin = "a"
[[routes]]
name = "b"
basin = "b"
"""


def both(*changed: tuple[str, str], more: str = "") -> tuple[Config, Config]:
    text = BEFORE
    for old, new in changed:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_config(BEFORE), parse_config(text + more)


@pytest.mark.parametrize(
    ("changed", "more", "told"),
    [
        ((), "", []),
        ((), "[drain]\naccept_seconds = 1\n[log]\nlevel = 'debug'\n", ["drain.accept_seconds", "log.level"]),
        ((('"127.0.0.1:1"', '"127.0.0.1:2"'),), "", ["listeners.s2.public.bind"]),
        ((("[[listeners.s2]]\n", "[[listeners.s2]]\ncompress = false\n"),), "", ["listeners.s2.compress"]),
        ((('name = "b"\nbasin = "b"', 'name = "c"\nbasin = "b"'),), "", ["routes.b", "routes.c"]),
        ((('basin = "b"', 'basin = "c"'),), "", ["routes.b.basin"]),
        ((), "[[store.basins]]\nname = 'another1'\n", ["store.basins.another1"]),
        ((), "[backs.far]\nkind = 's3p'\naddress = 'a:1'\n", ["backs.far"]),
        (
            (('name = "a"\nbasin = "a"', 'name = "x"'), ('name = "b"\nbasin = "b"', 'name = "a"\nbasin = "a"'),
             ('name = "x"', 'name = "b"\nbasin = "b"')),
            "",
            ["routes (order)"],
        ),
    ],
)  # fmt: skip
def test_what_may_change_is_told(changed: tuple[tuple[str, str], ...], more: str, told: list[str]) -> None:
    now, new = both(*changed, more=more)
    assert changes(now, new) == told
    check_changes(now, new)


@pytest.mark.parametrize(
    ("changed", "more", "refused"),
    [
        ((('directory = "here"', 'directory = "there"'),), "", "store.directory"),
        ((), "[recorder]\ndirectory = 'x'\n", "recorder"),
        ((), "[log]\nformat = 'json'\n", "log.format"),
        ((("[listeners.segment]\n", "[listeners.segment]\nbasin = 'another1'\n"),), "", "listeners.segment.basin"),
        (
            (("[listeners.controller]\n", "[listeners.controller]\nsegments = 'refuse'\n"),),
            "",
            "listeners.controller.segments",
        ),
        (
            (("[listeners.controller]\n", "[listeners.segment.loss]\nheaders = 'envelope'\n[listeners.controller]\n"),),
            "",
            "listeners (the choice of envelopes)",
        ),
        ((('directory = "here"', "reader_threads = 1"),), "", "store.directory, store.reader_threads"),
    ],
)
def test_what_needs_a_restart_is_refused_by_name(changed: tuple[tuple[str, str], ...], more: str, refused: str) -> None:
    now, new = both(*changed, more=more)
    with pytest.raises(CannotReload) as caught:
        check_changes(now, new)
    assert str(caught.value) == f"{refused}: cannot change while the gateway runs; restart it to apply this"
