"""The gateway's own state as tables: in the embedded store, or on a server that keeps the state in its place.

A table maps keys to values, each with a version that changes with every write, and is created by its first write: a
missing table counts as an empty one. A change that was decided on a version is made only while the key still has it, so
tasks and gateways that share a state need no lock (`penstock.model.table_operations`).

`ByteTable` has bytes for values. `StructTable` has structs as JSON, under keys that are paths. `TableJournal` gathers
the changes of many tasks to one of these, which then share a write.
"""
