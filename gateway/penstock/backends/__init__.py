"""Backs made of other parts: the embedded store, and adapters that add what another server's protocol lacks.

Some servers do not number records. `sequence_numbering` numbers them: it keeps marks of known
positions in a table of the embedded store (`positions`), and reads forward from the nearest mark. `byte_view` adds the
byte offsets that some clients need to a back of records. What they keep is in tables (`kept_table`): of the embedded
store, or on a log that several gateways share (`logged_tables`). `combined` joins a back of records and one of bytes.
"""
