"""Conversations that speak HTTP, of either version: S2's sessions, event streams, JSON and protobuf, and gRPC calls.

Kinds of messages, by layer; each message's `event` is the codec's own:

| layer | kind |
|---|---|
| http | a request's method, a response's status, also 1xx (`event`: RequestHead, ResponseHead) |
| http | bodies that are one message: `AppendInput`, `AppendAck`, `ReadBatch`, `TailResponse`, `Error`, `JSON` |
| http | the same of the control plane, by the names of the API's schema, as `StreamConfig` |
| http | `body`: one that is not decoded, as a size; `END`, `trailers`: a session, or a body, is complete |
| http | HTTP/2: `SETTINGS`, `PING`, `GOAWAY`, `RST_STREAM`, `PUSH_PROMISE`; where heads are unknown `HEADERS`, `DATA` |
| http | `lost`, `end`: appends that were not acknowledged when bytes were lost, or the recording ended |
| s2s | `AppendInput`, `AppendAck`, `ReadBatch`, `heartbeat`, `Terminal` |
| sse | `batch`, `ping`, `error`, `done`, or an event's own name |
| grpc | the method's name for a request, the message's for an answer |
"""
