"""Analysis of captured bytes: the capture format, conversations as messages and records, and redaction of secrets.

- `capture`: events of connections, and pcapng files of them, written and read.
- `dialogue`: events of one conversation in, messages, problems and records out. `dialogue.http` reads HTTP, whatever it
  carries.
- `redaction`: events in, the same events without secrets out. Lengths and offsets stay, so that captures written from
  them can be read by the same code, and by Wireshark.
- `wireshark`: messages as text in comments of packets.
- `s2`, `s3p`, `segment`, `controller`: one folder for each protocol, with its dialogue (or its share of HTTP's),
  its share of redaction, the clauses of its specification, and `plugin.py`, by which the shared code finds all of that.
- `plugin`: what a plug-in may have. Nothing else here names a protocol.
"""
