"""Sample where the gateway's processor time goes, with a sampler inside it that costs a few per cent.

    python bench/sampling.py OUTPUT serve --config FILE

A profiling timer of the system fires every millisecond of processor time that the process uses in all its threads;
each time the stacks of all threads are noted. At the end OUTPUT gets, per thread, functions by share of samples in
which they ran (self) or were on the stack (all). `bench/run.py --profile OUTPUT` does this for the whole run.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_SECONDS = 0.001
SHOWN = 45
# A thread whose innermost function is one of these is waiting, not working.
WAITING = ("get_events", "_work")

_own: dict[str, Counter[str]] = {}
_all: dict[str, Counter[str]] = {}


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{frame.f_lineno} {code.co_qualname}"


def _function(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(Path(code.co_filename).parts[-2:])} {code.co_qualname}"


def _sample(_: int, interrupted: FrameType | None) -> None:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    for ident, top in sys._current_frames().items():
        frame: FrameType | None = interrupted if ident == own else top
        if frame is None or frame.f_code.co_name in WAITING:
            continue
        kind = "main" if ident == own else names.get(ident, "?").split("-")[0].rstrip("0123456789 ")
        _own.setdefault(kind, Counter())[_name(frame)] += 1
        seen = set()
        while frame is not None:
            seen.add(_function(frame))
            frame = frame.f_back
        _all.setdefault(kind, Counter()).update(seen)


def _write(path: Path) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    lines = []
    for kind, own in _own.items():
        total = own.total()
        lines.append(f"== {kind}: {total} samples")
        for title, counts in (("self", own), ("all", _all[kind])):
            lines += [f"{count / total:7.1%} {title:4} {name}" for name, count in counts.most_common(SHOWN)]
            lines.append("")
    path.write_text("\n".join(lines))


def main() -> None:
    output, sys.argv[1:] = Path(sys.argv[1]).resolve(), sys.argv[2:]
    sys.argv[0] = "penstock"
    from penstock.cli import main as serve

    atexit.register(_write, output)
    signal.signal(signal.SIGPROF, _sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
    serve()


if __name__ == "__main__":
    main()
