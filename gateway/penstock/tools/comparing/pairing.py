"""Pairing of the streams of two recordings, whose protocols may name them differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from operator import attrgetter
from typing import Final

import msgspec

from penstock.capture.dialogue.records import plain_stream
from penstock.capture.plugin import plugins
from penstock.tools.comparing.record_table import ComparedStream

__all__ = ["Pairs", "called", "join_names", "pair_streams", "wanted"]

_name: Final = attrgetter("name")


class Pairs(msgspec.Struct):
    """Streams that belong together, and those without a partner."""

    both: list[tuple[ComparedStream, ComparedStream]] = msgspec.field(default_factory=list)
    only_a: list[ComparedStream] = msgspec.field(default_factory=list)
    only_b: list[ComparedStream] = msgspec.field(default_factory=list)


@cache
def _shortened() -> dict[str, Callable[[str], str]]:
    """Return how layers shorten the name of a part of a stream to that of the stream."""
    return {
        layer: plugin.stream_of
        for plugin in plugins().values()
        if plugin.stream_of is not None
        for layer in plugin.layers
    }


def _whole(stream: ComparedStream) -> str:
    """Return the name of the stream, without the part of it that `name` may add."""
    shorten = _shortened().get(stream.layer)
    return stream.name if shorten is None else shorten(stream.name)


def join_names(streams: Sequence[ComparedStream]) -> list[ComparedStream]:
    """Join the streams of a source that are one stream under several names: one that some clients call `orders` and
    others `basin/orders` gets the longest name, if only one basin has it.

    If any of its clients appended, its records are all that were appended. Otherwise they are those of the name with
    the most records: each record has one position per protocol, by which copies cannot be recognised.
    """
    bare = [stream for stream in streams if "/" not in stream.name]
    full: dict[str, list[ComparedStream]] = {}
    for seen_stream in streams:
        if "/" in seen_stream.name:
            full.setdefault(_last_part(seen_stream), []).append(seen_stream)
    by_name = {stream.name: stream for stream in streams}
    for seen_stream in bare:
        same = full.get(seen_stream.name, [])
        if len({_whole(other) for other in same}) == 1:
            for other in (seen_stream, *same):
                del by_name[other.name]
            together = _together([seen_stream, *same])
            by_name[together.name] = together
    return [by_name[name] for name in sorted(by_name)]


def _together(streams: list[ComparedStream]) -> ComparedStream:
    full = max(streams, key=lambda seen_stream: len(seen_stream.name))
    appended = [stream for stream in streams if stream.appended]
    used = appended or [max(streams, key=lambda seen_stream: seen_stream.records)]
    return full._replace(
        others=tuple(stream.name for stream in streams if stream is not full),
        numbers=tuple(number for seen_stream in used for number in seen_stream.numbers),
        appended=bool(appended),
        records=sum(seen_stream.records for seen_stream in used),
        kinds=frozenset().union(*(seen_stream.kinds for seen_stream in used)),
    )


def called(streams: Iterable[ComparedStream], name: str) -> ComparedStream | None:
    """Return the stream with this name, or with this alternative name; None if there is none."""
    return next((stream for stream in streams if name == stream.name or name in stream.others), None)


def wanted(stream: ComparedStream, globs: Sequence[str]) -> bool:
    """Return whether a name of the stream matches one of the globs; without globs every stream matches."""
    names = {each for name in (stream.name, *stream.others) for each in (name, plain_stream(name))}
    return not globs or any(fnmatchcase(name, glob) for glob in globs for name in names)


def pair_streams(a: Sequence[ComparedStream], b: Sequence[ComparedStream], named: Mapping[str, str]) -> Pairs:
    """Pair the streams of two sources.

    `named`: names in B by names in A, where they are known. Other streams are paired by equal names, then by equal last
    parts if those are unique on each side: S3P says `orders` where S2 says `basin/orders` and Pravega
    `scope/orders/0.#epoch.0`.
    """
    pairs = Pairs()
    left, right = {stream.name: stream for stream in a}, {stream.name: stream for stream in b}
    for first, second in named.items():
        stream, other = called(left.values(), first), called(right.values(), second)
        if stream is not None and other is not None:
            pairs.both.append((left.pop(stream.name), right.pop(other.name)))
    for spelling in (_name, _whole, _last_part):
        ones, others = _unique(left, spelling), _unique(right, spelling)
        for name in ones.keys() & others.keys():
            pairs.both.append((left.pop(ones[name]), right.pop(others[name])))
    pairs.both.sort(key=lambda pair: pair[0].name)
    pairs.only_a, pairs.only_b = list(left.values()), list(right.values())
    return pairs


def _last_part(stream: ComparedStream) -> str:
    return _whole(stream).rpartition("/")[2]


def _unique(streams: Mapping[str, ComparedStream], spelling: Callable[[ComparedStream], str]) -> dict[str, str]:
    """Return the streams' names by their spelling, for spellings of only one."""
    by_spelling: dict[str, list[str]] = {}
    for name, stream in streams.items():
        by_spelling.setdefault(spelling(stream), []).append(name)
    return {short: together[0] for short, together in by_spelling.items() if len(together) == 1}
