"""The wire contracts that Penstock speaks in Protocol Buffers, and the modules generated from them.

`s2_pb2` is the S2 data plane (package `s2.v1`), `s2_columns_pb2` a second reading of the same bytes that is
cheaper to turn into columns. `pravega_controller_pb2` is what clients of Pravega ask its controller. All are generated
by `make proto` and checked in.
"""
