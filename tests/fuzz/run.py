"""Fuzz all targets in turn (`make fuzz`): inputs that reach new code are kept beside the environment, and the next run
begins with them.

It ends with status 1 if a property was broken; the input is kept, and the command that repeats it is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from fuzz.corpora import content_name, read_corpus, target_named, targets, write_corpus

__all__ = ["main"]

PLACE: Final = Path(sys.prefix) / "fuzz"
"""Directory of the inputs that runs keep: those that were found, by target, and those that broke a property."""
BROKEN: Final = PLACE / "broken"
LONGEST: Final = 2048
"""Most bytes of an input. Limits in the targets are so narrow that these are enough."""
MOST_MEMORY_MIB: Final = 1024
MOST_SECONDS: Final = 10
"""Most seconds for one input."""
_COUNTED: Final = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz the targets that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz.run", description=__doc__)
    parser.add_argument("--only", action="append", choices=targets(), metavar="NAME", help="this target; repeatable")
    parser.add_argument("--seconds", type=int, default=60, help="time for each target")
    parser.add_argument("--merge", action="store_true", help="then keep the fewest inputs in tests/fuzz/corpus")
    chosen = parser.parse_args(arguments)
    broken = [name for name in chosen.only or targets() if not _fuzz(name, chosen.seconds, chosen.merge)]
    return 1 if broken else 0


def _fuzz(name: str, seconds: int, merge: bool) -> bool:
    """Fuzz a target; return whether no property was broken."""
    found = PLACE / name
    _write(found, [*target_named(name).seeds(), *read_corpus(name)])
    BROKEN.mkdir(exist_ok=True)
    options = [f"-max_total_time={seconds}", "-print_final_stats=1"]
    if words := getattr(target_named(name), "WORDS", ()):
        dictionary = PLACE / f"{name}.dict"
        dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in words))
        options.append(f"-dict={dictionary}")
    ended = _one(name, *options, str(found))
    if ended.returncode != 0:
        print(ended.stdout, ended.stderr)
        print(f"{name}: broken; PYTHONPATH=tests {sys.executable} -m fuzz.one {name} FILE runs an input again")
        return False
    counted = dict(_COUNTED.findall(ended.stderr))
    inputs = len(list(found.iterdir()))
    print(f"{name}: {counted['number_of_executed_units']} inputs, {counted['new_units_added']} new, {inputs} in all")
    if merge:
        with tempfile.TemporaryDirectory() as fewest:
            _one(name, "-set_cover_merge=1", fewest, str(found)).check_returncode()
            kept = {path.read_bytes() for path in Path(fewest).iterdir()} - set(target_named(name).seeds())
        size = write_corpus(name, kept)
        print(f"{name}: {len(kept)} inputs are kept, in {size} bytes", flush=True)
    return True


def _one(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    bounds = [f"-max_len={LONGEST}", f"-rss_limit_mb={MOST_MEMORY_MIB}", f"-timeout={MOST_SECONDS}", "-verbosity=0"]
    command = [sys.executable, "-m", "fuzz.one", name, *bounds, f"-artifact_prefix={BROKEN}{os.sep}{name}-", *options]
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


def _write(folder: Path, inputs: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / content_name(data)).write_bytes(data)


def _escaped(word: bytes) -> str:
    """Return a word as libFuzzer's dictionaries spell it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
