"""Sans-IO codecs for each protocol, and the one record model, operations and failures that they share.

Nothing here opens a socket, reads a clock, draws random numbers or logs. The gateway drives these modules under trio;
Spark executors, the capture reader and fuzzers drive the same modules without it.
"""
