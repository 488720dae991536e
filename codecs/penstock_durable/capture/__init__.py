"""Durable Streams in captures: its requests, answers and events as messages and records, and where secrets are in them.

Kinds of messages of layer `durable`; each message's `event` is the codec's own:

| kind | |
|---|---|
| `create`, `append` | a PUT or POST, complete |
| `created`, `exists`, `appended` | its answer, with the records that are appended now |
| `position` | an answer to HEAD, or a GET without data |
| `batch` | data with the position behind it: the body of a GET, or two events of an event stream |
| `control` | a position in an event stream, without data |
| `error` | the body of an answer that refuses a request |
"""
