"""Sockets: listeners, TLS, HTTP and gRPC, limits per client, draining, and connections to servers behind the gateway.

One nursery holds a listener's connections, one task each; a failure in a connection ends at its boundary (`accepting`).
On drain a listener stops accepting first, tells its front, and ends its connections at a deadline (`listeners`,
`draining`).

Reads and writes try the system call first and wait only if it would block: a trio wait costs several microseconds
(`transport`). Codecs without I/O parse; this package moves bytes between them and sockets. Bytes that were read
and not yet used count against the client's quota, and a client over its quota is not read until it has used some
(`limits`).

A server behind the gateway is reached through an `upstream`: dial, TLS, time limits, and a circuit breaker that fails
at once while the server is known to be down. Failures before the first byte was sent may be retried; later ones may
not, unless the back allows it (`retries`).
"""
