"""HTTP/1.1 and HTTP/2 over trio, as a server (`server`, `serving`) and as a client (`client`).

The codecs parse (`penstock.wire.http`, on h11 and h2). A connection has one task that reads and one task for each
exchange; output of all exchanges is gathered and flushed once before the connection waits.
"""
