"""Transactions of producers (KIP-98), without the wire.

The records of an open transaction are not in their streams. They wait as batches in the table of the listener
(`pending`), and are appended once the commit is decided, so clients of all protocols see committed records only. The
decision is a record in the same table: what it demands is repeated until it is done, also after the gateway was killed.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING
"""
