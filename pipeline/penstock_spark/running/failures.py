"""Failures of jobs and of starting them: the cause in a sentence, without the stacks of two languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["CannotRun", "JobFailed", "cause"]

_LIMIT: Final = 2000
"""Maximum number of characters of a cause."""
_PYTHON_ERROR: Final = re.compile(r"^(?P<type>[A-Za-z_][\w.]*): ?(?P<words>.*)", re.MULTILINE)
_JAVA_STACK: Final = re.compile(
    r"\n\s*(?:at [\w.$/<>]+\(|JVM stacktrace:|Driver stacktrace:|=== Streaming Query ===|"
    r"This stopped SparkContext |Caused by: "
    r"|\.\.\. \d+ more)|;\n'\w"
)
"""The beginning of a stack, of a streaming query's progress, or of the plan of an invalid query."""
_ERROR_CLASS: Final = re.compile(r"^\[[A-Z][A-Z0-9_.]*\]\s*")
_SQL_STATE: Final = re.compile(r"(?:\s*SQLSTATE: \w+)+\s*$")


class CannotRun(Exception):
    """Java or PySpark is missing or too old; the message says which, and how to get it."""


class JobFailed(Exception):
    """A job cannot do what was asked of it; the message says why."""


def cause(error: BaseException) -> str:
    """Return the cause of Spark's failure for people: the message of the innermost program, at most 2,000 characters.

    An error on an executor is wrapped in errors of the driver, of the JVM and of Python; its cause is the end of
    Python's last traceback. Otherwise the cause is the innermost exception of the JVM, preferably one with a code of
    Spark's errors.
    """
    said = [text for text in map(str.strip, _texts(error)) if text]
    for text in said:
        python = _python_cause(text)
        if python:
            return python[:_LIMIT]
    coded = [text for text in said if _ERROR_CLASS.match(text)]  # these are written for people
    words = _without_stack((coded or said or [""])[-1])
    return (words or type(error).__name__)[:_LIMIT]


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the messages of the error and of its causes in the JVM, the outermost first."""
    java = getattr(error, "java_exception", None)  # of Py4J, whose own text is the whole stack
    if java is None:
        yield str(error)
        java = getattr(error, "_origin", None)  # of PySpark's own exceptions
    seen = 0
    while java is not None and seen < 20:
        yield _java_text(java)
        java, seen = java.getCause(), seen + 1


def _java_text(java: Any) -> str:
    message = java.getMessage()
    return str(message) if message else str(java.getClass().getSimpleName())


def _python_cause(text: str) -> str:
    """Return the error at the end of the last traceback in `text`; "" if there is none."""
    _, traceback, rest = text.rpartition("Traceback (most recent call last):")
    if not traceback:
        return ""
    lines = rest.lstrip("\n").split("\n")
    while lines and (not lines[0] or lines[0][0].isspace()):
        lines.pop(0)
    match = _PYTHON_ERROR.match(_without_stack("\n".join(lines)))
    return (_plain(match["words"] + match.string[match.end() :]) or match["type"]) if match else ""


def _without_stack(text: str) -> str:
    match = _JAVA_STACK.search("\n" + text)
    return _plain(("\n" + text)[: match.start()] if match else text)


def _plain(text: str) -> str:
    """Return the text without the codes of Spark's errors around it."""
    return _SQL_STATE.sub("", _ERROR_CLASS.sub("", text.strip())).strip()
