"""Fuzz one target: `python -m fuzz.one NAME [options of libFuzzer]`, with `tests` on the path."""

from __future__ import annotations

import shlex
import sys
from typing import Final

import atheris
from fuzz.corpora import target_named

PACKAGES: Final = ["penstock", "penstock_durable", "penstock_kafka", "penstock_pravega", "penstock_s2", "penstock_s3p"]
"""The packages whose code guides the fuzzer."""


def main() -> None:
    """Fuzz until libFuzzer ends the process; a property that is broken ends it with its traceback."""
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=PACKAGES):
        target = target_named(name)
        for seed in target.seeds():  # imports what is imported late
            target.check(seed)
    # libFuzzer runs itself again through a shell to merge inputs.
    sys.argv[0] = shlex.join([sys.executable, "-m", "fuzz.one", name])
    atheris.Setup(sys.argv, target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
