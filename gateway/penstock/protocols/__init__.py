"""One folder for each protocol: its front (clients of the gateway) and its back (servers behind the gateway).

A front owns a connection from the first byte to the last: it drives the server side of a codec, turns requests into
operations on a `Back`, and spells failures in its protocol's words. A back drives the client side of the same codec.
No folder imports another one.
"""
