"""Captured bytes: the capture format, conversations as messages and records, and redaction of secrets, without I/O.

- `pcapng`: events of connections, and pcapng files of them, written and read.
- `dialogue`: events of one conversation in, messages, problems and records out. `dialogue.http` reads HTTP, whatever it
  carries.
- `redaction`: events in, the same events without secrets out. Lengths and offsets stay, so that captures written from
  them can be read by the same code, and by Wireshark.
- `wireshark`: messages as text in comments of packets.
- `plugin`: what each protocol adds, in the folder `capture` of its package: its dialogue (or its share of HTTP's), its
  share of redaction, and the clauses of its specification.
"""
