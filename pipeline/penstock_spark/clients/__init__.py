"""Clients of each protocol (`plugin`): blocking sockets around the codecs.

Spark runs each task in a process of its own, so a blocking client is the simplest fast design. A client holds one
connection or a few and is used by one thread. Every wait has a deadline.
"""

from penstock_spark.clients.base import Appender, NumberedAppender, ReadPosition, ReadResult, StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.opening import open_client

__all__ = ["Appender", "Endpoint", "NumberedAppender", "ReadPosition", "ReadResult", "StreamClient", "open_client"]
