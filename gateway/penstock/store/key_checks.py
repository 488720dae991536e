"""Key check values: an append with another key than that of the stream's records is refused.

Without them such an append succeeds, and every reader fails at its records. The first append to an encrypted stream
stores the check value of its key with the stream. A stream of an older gateway has records and no check value: its
newest record that can be read must open with the key of the next append, which then sets it.
"""

from __future__ import annotations

import hmac
import sqlite3
from contextlib import closing
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import is_command
from penstock.store.batches import batch_of_rows
from penstock.store.encryption import RecordCipher, wrong_key
from penstock.store.heads import StoredStream
from penstock.store.reader import row_from_sql
from penstock.store.registry import could_not_read
from penstock.store.schema import ReaderConnection
from penstock.store.u64 import to_sql

__all__ = ["KeyChecks"]

_MOST_ROWS: Final = 256
"""Newest rows in which the encrypted record of an older stream is looked for: those after it hold commands alone. The
look-up runs between two appends of other clients, and takes some 10 us a row."""
_NEWEST: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, encoding,
  payload, file, file_offset, file_bytes, checksum
FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq >= ? ORDER BY last_seq DESC LIMIT ?
"""


class KeyChecks:
    """The key check values of the streams of a store. `db`: used by the thread that decides appends."""

    def __init__(self, db: ReaderConnection) -> None:
        self._db = db

    def value(self, stream: StoredStream, cipher: RecordCipher) -> bytes:
        """Return the stream's check value, or that of the cipher's key if it has none.

        Raises OperationFailed: DECRYPTION_FAILED if the records of the stream have another key, STORAGE if they cannot
        be read.
        """
        expected = stream.head.key_check
        if expected is not None:
            if not hmac.compare_digest(expected, cipher.key_check):
                raise wrong_key()
            return expected
        try:
            self._open_newest(stream, cipher)
        except sqlite3.Error as error:
            raise could_not_read(error) from error
        return cipher.key_check

    def _open_newest(self, stream: StoredStream, cipher: RecordCipher) -> None:
        """Open the newest encrypted record that is not damaged, if there is one. All rows are durable: an append that
        was decided and is not has set the check value."""
        parameters = (stream.id, to_sql(stream.head.trim_point), _MOST_ROWS)
        with closing(self._db.execute(_NEWEST, parameters)) as rows:
            for row in rows:
                try:
                    batch = batch_of_rows([row_from_sql(self._db, stream.id, row)])
                    index = next(
                        (i for i in range(batch.count) if not is_command(batch.columns.headers.get(i, ()))), None
                    )
                    if index is not None:
                        cipher.opened(batch.part(index, index + 1))
                        return
                except OperationFailed as error:
                    if error.failure.code is not FailureCode.DAMAGED:
                        raise
