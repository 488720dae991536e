"""HTTP, gRPC, compression and the interface of a codec, which protocols share, without I/O.

Nothing here opens a socket, reads a clock, draws random numbers or logs. The gateway drives these modules under trio;
Spark executors, the capture reader and fuzzers drive the same modules without it.
"""
