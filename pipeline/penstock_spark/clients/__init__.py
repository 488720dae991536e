"""The client of an S2S server, usually a gateway: blocking sockets around the codecs.

Spark runs each task in a process of its own, so a blocking client is the simplest fast design. A client holds one
connection or a few and is used by one thread. Every wait has a deadline. `client` is imported only where streams are
read or written, as it takes 0.3 s.
"""
