"""The waist: the record model, operations, failures and limits that all protocols share, without I/O.

A front converts its protocol's requests to operations on records, and a back converts these to its server's protocol
(decision 3). The order to read in: `records`, `operations`, `failures`; then `streams`, `byte_operations` and
`byte_layout` (records as a stream's bytes), `record_encoding` (records as they are stored).
"""
