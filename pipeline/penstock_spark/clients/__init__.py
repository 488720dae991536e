"""Clients of the three ways to a stream (S2S, S3P, segments): blocking sockets around the codecs.

Spark runs each task in a process of its own that has nothing else to do, so a blocking client is the simplest thing
that is fast. One object is one connection, or a few, used by one thread. Nothing waits without a deadline.
"""

from penstock_spark.clients.base import Appender, Mark, NumberedAppender, Rows, StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.opening import open_client

__all__ = ["Appender", "Endpoint", "Mark", "NumberedAppender", "Rows", "StreamClient", "open_client"]
