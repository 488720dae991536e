"""A program that appends one record after the other to a store, and says what was acknowledged.

`python sync_writer.py DIRECTORY APPENDS SIZE`. A line for each acknowledged record, whose body is its number, and
filler up to SIZE bytes. Every few appends the log is moved and begins anew, and a new file of large payloads begins, so
that syncs of all kinds are among the first hundred. It ends as the gateway does where the store fails: with the reason
on standard error and exit code 1.
"""

import sys
from pathlib import Path

import trio

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.errors import CannotStart, StoreFailed
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append, EnsureBasin, EnsureStream
from penstock.model.records import StreamRef, metered_size
from penstock.observe import configure_logging
from penstock.store import payload_files

STREAM = StreamRef("sync-basin", "one")


def body(number: int, size: int) -> bytes:
    """Return the body of a record."""
    return (b"%d" % number).ljust(size, b".")


async def main(directory: Path, appends: int, size: int) -> None:
    """Append, until it fails."""
    payload_files.FILE_BYTES = 3 * size  # type: ignore[misc]
    settings = EmbeddedSettings(directory=directory, checkpoint_bytes=32 << 10, log_bytes=128 << 10)
    async with open_embedded(settings) as back:
        try:
            await back.perform(EnsureBasin(STREAM.basin))
            await back.perform(EnsureStream(STREAM))
            for number in range(appends):
                bodies = [body(number, size)]
                await back.perform(Append(STREAM, bodies, metered_size(bodies, {})))
                print(number, flush=True)
        except OperationFailed as error:
            assert error.failure.code is FailureCode.STORAGE
            await trio.sleep(30)  # the store ends this


if __name__ == "__main__":
    configure_logging("info", "json")
    try:
        trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    except (CannotStart, StoreFailed) as error:
        sys.exit(str(error))
