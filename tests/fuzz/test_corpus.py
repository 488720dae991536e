"""Every seed and every input that is kept for a fuzz target, without the fuzzer."""

from __future__ import annotations

import tracemalloc
from typing import Final

import pytest
from fuzz.corpora import FOLDER, read_corpus, target_named, targets

from penstock.model.limits import KIB, MIB

MOST_MEMORY: Final = 32 * MIB
"""Most bytes that an input of a few hundred may cost; a length that is merely announced costs nothing."""
MOST_KEPT: Final = 300 * KIB
"""Most bytes of all archives."""


@pytest.mark.parametrize("name", targets())
def test_inputs_keep_the_properties_of_their_target(name: str) -> None:
    target = target_named(name)
    for data in target.seeds():  # these also import what is imported late, whose memory does not count
        target.check(data)
    tracemalloc.start()
    try:
        for data in read_corpus(name):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            target.check(data)
            assert tracemalloc.get_traced_memory()[1] - before < MOST_MEMORY, data
    finally:
        tracemalloc.stop()


def test_archives_are_small_and_each_is_of_a_target() -> None:
    files = list(FOLDER.iterdir())
    assert sorted(path.stem for path in files) == targets()
    assert sum(path.stat().st_size for path in files) < MOST_KEPT
