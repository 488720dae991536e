"""The cause of a failure, extracted from Spark's wrapping exceptions."""

from __future__ import annotations

import pytest

from penstock_spark.running.failures import cause


class JavaError:
    """A double of Py4J's exceptions of the JVM."""

    def __init__(self, message: str | None, because: JavaError | None = None) -> None:
        self._message, self._because = message, because

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def getCause(self) -> JavaError | None:  # noqa: N802
        return self._because

    def getClass(self) -> JavaError:  # noqa: N802
        return self

    def getSimpleName(self) -> str:  # noqa: N802
        return "OddException"


class FromJava(Exception):
    """As Py4J raises it."""

    def __init__(self, java: JavaError) -> None:
        super().__init__("An error occurred while calling o1.collect.\n: org.apache.Odd\n\tat java.base/X.y(X.java:1)")
        self.java_exception = java


class Captured(Exception):
    """As PySpark raises it."""

    def __init__(self, text: str, origin: JavaError | None = None) -> None:
        super().__init__(text)
        self._origin = origin


PLANNING = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: Traceback (most recent call last):
  File "/lib/penstock_spark/source/batch.py", line 13, in partitions
    raise WrongOptions(2)
    ^^^^^^^^^^^^^^^^^^^^^
penstock_spark.options.WrongOptions: format penstock: 2 wrong
  end: 5 is before 7
  start: nothing
 SQLSTATE: 38000"""
CHAINED = """\
Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times (TID 4) (host executor driver): Traceback (most \
recent call last):
  File "a.py", line 1, in read
OSError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 1, in read
penstock.model.failures.OperationFailed: unavailable: 127.0.0.1:1: connection refused

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Driver stacktrace:"""
STREAMING = """\
[STREAM_FAILED] Query [id = 70e4] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed: \
Traceback (most recent call last):
  File "/lib/pyspark/sql/streaming/worker.py", line 13, in latest_offset_func
    offset = reader.latestOffset(start, limit)
penstock.model.failures.OperationFailed: unavailable: http://127.0.0.1:1: cannot connect: connection refused
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: streams [id = 70e4, runId = 1ab2]
Current Available Offsets: {}

Current State: INITIALIZING
Thread State: RUNNABLE"""
PLAN = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nope` is unknown. Did you mean `id`? SQLSTATE: 42703; line 1 pos 0;
'Project ['nope]
+- Range (0, 3, step=1, splits=Some(2))
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Captured(PLANNING), "format penstock: 2 wrong\n  end: 5 is before 7\n  start: nothing"),
        (Captured("job", JavaError(CHAINED)), "unavailable: 127.0.0.1:1: connection refused"),
        (FromJava(JavaError(CHAINED)), "unavailable: 127.0.0.1:1: connection refused"),
        (Captured(STREAMING), "unavailable: http://127.0.0.1:1: cannot connect: connection refused"),
        (
            FromJava(JavaError("It is stopped.\nThis stopped SparkContext was created at:\n\norg.X.y(X.java:1)")),
            "It is stopped.",
        ),
        (Captured(PLAN), "A column `nope` is unknown. Did you mean `id`? SQLSTATE: 42703; line 1 pos 0"),
        (FromJava(JavaError("[X.Y] Said well. SQLSTATE: 1", JavaError("nope.DefaultSource"))), "Said well."),
        (FromJava(JavaError("Job aborted", JavaError("Mkdirs failed to create /x"))), "Mkdirs failed to create /x"),
        (FromJava(JavaError("outer\n\tat a.B(C.java:1)", None)), "outer"),
        (FromJava(JavaError(None)), "OddException"),
        (ValueError(), "ValueError"),
        (ValueError("plain"), "plain"),
    ],
)
def test_causes(error: Exception, expected: str) -> None:
    assert cause(error) == expected


def test_a_cause_without_end_is_cut() -> None:
    assert len(cause(ValueError("x" * 10_000))) == 2000


def test_a_circle_of_causes_ends() -> None:
    circle = JavaError("round")
    circle._because = circle
    assert cause(FromJava(circle)) == "round"
