"""HTTP as an observer of recorded bytes reads it, either version, one side at a time.

`Http1Connection` and `Http2Connection` take part in a conversation: they keep its state, answer for faults, and end at
the first one. An observer has other needs: the offset of each message and of the first wrong byte in what a side sent,
the clause of the rule behind a fault, bodies handed on as they come and without a copy, and beginnings that were not
recorded. h11 and h2 give no offsets, and need both sides of a conversation in step. So heads and chunks of HTTP/1.1 and
frames of HTTP/2 are split here, once for dialogues, redaction and mocks; what is in them is read by the same code as
live traffic: `hpack`, the checks of h2, `h2_heads`, and the lines of `chunked`. The tests compare both readings.
"""
