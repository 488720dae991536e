"""Recorded servers, for a command or for any client: `penstock mock`.

A recording is taken apart into *exchanges*: a request and its answer. A live request is given the answer of the first
exchange that was not given yet and whose request is the same, byte by byte, except for headers that differ between runs
and for redacted parts. So it matters neither which connection carries a request nor in which order tests run. Requests
that no exchange answers are *misses*.

    exchanges   conversations as exchanges: HTTP, and protocols whose requests are single messages
    answers     the exchanges of a recording, on disk while they are played
    naming      tests, and the directories with their recordings
    http        live requests over HTTP
    commands    live requests of other protocols
    origins     the servers that answer misses, and the recordings of what they answered
    fork        recorded streams in an embedded store, to be appended to
    gateway     a gateway in the command's process
    servers     all mock servers of a run
    report      what was asked

Protocols whose messages repeat identifiers that a client made up, as Pravega's and Kafka's, have no such exchanges:
their clients are served by a fork, or refused.
"""
