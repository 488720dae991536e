"""STOMP 1.2 (stomp.github.io) as a front: a protocol whose server pushes, as a package outside of Penstock.

| frame of a client | what the gateway does |
|---|---|
| `CONNECT`, `STOMP` | logs the client in by `login` and `passcode`: a user name with its password, or a token |
| `SEND` | appends the body to the stream that `destination` names; other headers are the record's |
| `SUBSCRIBE` | pushes the stream's records as `MESSAGE`, from the tail on, or `x-stream-offset` |
| `ACK` | gives back credit: `prefetch-count` messages at most are unacknowledged, unless `ack` is `auto` |
| `UNSUBSCRIBE`, `DISCONNECT` | end a subscription, and the connection |
| `NACK`, `BEGIN`, `COMMIT`, `ABORT` | are refused: a stream neither delivers again nor has transactions |

A `receipt` is answered once the frame has its effect: that of a SEND when its record is durable. `message-id` is the
record's sequence number, and `x-stream-offset` is `first`, `next` or such a number. A stream cannot be read from a
server of STOMP again, so there is no back.
"""
