"""The sentences that Wireshark's extcap interface expects, and the file that Wireshark starts.

Wireshark runs every executable of its extcap folder with `--extcap-interfaces`, then with `--extcap-dlts` and
`--extcap-config` for each interface that it printed, and at last with `--capture --fifo FIFO` and the values of the
arguments that `--extcap-config` described. Each answer is lines of a word and `{key=value}` pairs (Wireshark's manual
page extcap(4)). There is one interface, `INTERFACE`; which gateway it shows is an argument.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from penstock.capture.pcapng.blocks import LINK_RAW

__all__ = ["INTERFACE", "Argument", "config", "dlts", "interfaces", "launcher", "personal_folder"]

INTERFACE: Final = "penstock"
"""The name of the interface."""
_TITLE: Final = "Penstock gateway"
_WRITTEN_BY: Final = "written by `penstock extcap install`"


class Argument(NamedTuple):
    """A field in the dialog of the interface. `call`: the option that passes its value. `kind`: a type of extcap(4).
    `default`: its first value, "" for none."""

    call: str
    title: str
    meaning: str
    kind: str = "string"
    default: str = ""
    placeholder: str = ""


def interfaces(version: str) -> list[str]:
    """Return the answer to `--extcap-interfaces`. `version`: of this program."""
    return [
        _sentence("extcap", version=version, display="Penstock"),
        _sentence("interface", value=INTERFACE, display=_TITLE),
    ]


def dlts() -> list[str]:
    """Return the answer to `--extcap-dlts`: the link type of recordings."""
    return [_sentence("dlt", number=str(LINK_RAW), name="RAW", display="Raw IP")]


def config(arguments: Sequence[Argument]) -> list[str]:
    """Return the answer to `--extcap-config`."""
    return [
        _sentence(
            "arg",
            number=str(number),
            call=argument.call,
            display=argument.title,
            tooltip=argument.meaning,
            type=argument.kind,
            default=argument.default,
            placeholder=argument.placeholder,
        )
        for number, argument in enumerate(arguments)
    ]


def _sentence(word: str, **pairs: str) -> str:
    """Return a line; pairs without a value are left out. A value must not have braces, which end it."""
    return f"{word} " + "".join(f"{{{key}={value}}}" for key, value in pairs.items() if value)


def personal_folder() -> Path:
    """Return the folder in which Wireshark 4.2 and later look for the user's own extcap programs."""
    return Path.home() / ".local" / "lib" / "wireshark" / "extcap"


def launcher(folder: Path, python: str) -> Path:
    """Write the program that Wireshark starts into `folder`, which is made if it is missing, and return its path.
    `python`: the interpreter that Penstock is installed for.

    Raises OSError, as FileExistsError if the file is there and something else wrote it.
    """
    path = folder / INTERFACE
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and _WRITTEN_BY not in path.read_text(encoding="utf-8", errors="replace"):
        raise FileExistsError(f"{path} was not {_WRITTEN_BY}: move it away first")
    path.unlink(missing_ok=True)  # it may be a symbolic link
    path.write_text(
        f"#!/bin/sh\n# Shows a running gateway as an interface of Wireshark; {_WRITTEN_BY}.\n"
        f'exec {shlex.quote(python)} -m penstock extcap "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path
