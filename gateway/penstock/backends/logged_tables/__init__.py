"""Tables whose truth is a log that several gateways share, in place of an embedded store.

Theory of operation. Every change of a table is a record of the log, and every gateway reads the log whole into memory
and follows it (`state`). Records are named by what they set, so the log may be compacted: the newest record of each
name is enough. A server does that, or `byte_log`. A change is decided against the state in memory, and appended on the
condition that the log has nothing behind what made that state (`ChangeLog.append`); if another gateway was faster, it
is decided again. So the order of the log decides, and no gateway refuses a record that is in it. The answer is given
once the gateway has read its own record back.

A read first asks the log for its end and waits until it has read so far: what was acknowledged through any gateway
before is seen. So tables are linearizable, and users of the embedded store's tables need not know the difference.

Items are named by an id of their table that is new with each creation. Deletion is one record; the items that it leaves
behind are removed with later changes.

A log that is missing, or is another one than was read, is not taken for an empty state (`LogLost`): the gateway keeps
what it has read, is not ready, and refuses all operations until a person restarts it.

`leases` gives a duty that one gateway may do at a time to one of them.
"""

from penstock.backends.logged_tables.back import ChangeLog, LoggedTables, LogLost, LogNews, open_logged_tables
from penstock.backends.logged_tables.byte_log import ByteLog
from penstock.backends.logged_tables.leases import Lease
from penstock.backends.logged_tables.state import GuardedChange, LoggedBatch, TableChange, TableState

__all__ = [
    "ByteLog",
    "ChangeLog",
    "GuardedChange",
    "Lease",
    "LogLost",
    "LogNews",
    "LoggedBatch",
    "LoggedTables",
    "TableChange",
    "TableState",
    "open_logged_tables",
]
