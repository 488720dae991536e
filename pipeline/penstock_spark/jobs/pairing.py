"""Which stream of one side is which of the other, where protocols name them differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock_codecs.dialogue.records import plain_stream

__all__ = ["last_part", "paired"]


def last_part(name: str) -> str:
    """What all protocols call it: S3P says `orders` where S2 says `basin/orders` and segments
    `scope/orders/0.#epoch.0`."""
    return plain_stream(name).rpartition("/")[2]


def paired(left: Iterable[str], right: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Names of the right by names of the left. `names`: those that one knows; the rest by equal names, then by equal
    last parts as long as only one stream of each side has it. Raises ValueError for a name that is not there."""
    lefts, rights = set(left), set(right)
    for which, known, given in (("left", lefts, names.keys()), ("right", rights, names.values())):
        if unknown := sorted(set(given) - known):
            raise ValueError(f"no stream on the {which} is called {unknown[0]!r}")
    if len(set(names.values())) < len(names):
        raise ValueError("two streams of the left are said to be the same one of the right")
    found = dict(names)
    lefts -= found.keys()
    rights -= set(found.values())
    for spelling in (str, plain_stream, last_part):
        ones, others = _unique(lefts, spelling), _unique(rights, spelling)
        for short in ones.keys() & others.keys():
            found[ones[short]] = others[short]
            lefts.remove(ones[short])
            rights.remove(others[short])
    return found


def _unique(names: Iterable[str], spelling: Callable[[str], str]) -> dict[str, str]:
    """Names by spelling, for spellings that only one name has."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(spelling(name), []).append(name)
    return {short: together[0] for short, together in found.items() if len(together) == 1}
