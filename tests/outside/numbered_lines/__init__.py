"""Numbered Lines: a protocol that no part of Penstock knows, with its plug-ins for all layers.

Every line ends in a line feed; in the dialect `crlf`, in a carriage return and a line feed.

| client | server |
|---|---|
| `LOGIN <token>` | nothing |
| `PUT <stream> <body>` | `OK <number>`: the number of the new record |
| `GET <stream> <first> <most>` | `ROW <number> <body>` for each record, then `END <next>`: the number that follows |

The server answers `NO <reason>` instead of the last line if it refuses. A name is letters, digits and `-`. A body is
any bytes without a line feed; it may be empty.
"""
