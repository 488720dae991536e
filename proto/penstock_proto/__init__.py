"""The wire contracts that Penstock speaks in Protocol Buffers, and the modules generated from them.

`records_pb2` is the encoding of stored records, read as columns; `s2_pb2` is the S2 data plane (package `s2.v1`), whose
records have the same bytes. `pravega_controller_pb2` is what clients of Pravega ask its controller. All are generated
by `make proto` and checked in.
"""
