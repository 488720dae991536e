"""How each protocol is spelled: sans-IO codecs, and the one record model, operations and failures they share.

Nothing here opens a socket, reads a clock, rolls dice or writes a log line. The gateway drives these modules
under trio; Spark executors, the capture reader and fuzzers drive the same modules without it.
"""
