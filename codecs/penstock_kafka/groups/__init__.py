"""Consumer groups: members share the partitions of topics, and commit how far they have read.

Theory of operation. `coordinator` decides, without I/O: requests and times go in, answers and records to store come
out. It holds all groups (`group`), whose states are a table (`states`), and their time-outs as values (`timers`).
Everything that must outlive the process is in a table of the embedded store: groups with their assignments, so that
members go on after a restart as if nothing had happened, and committed offsets, which are acknowledged when they are on
disk. Groups of the consumer protocol (KIP-848) have a coordinator of their own (`epochs`, `assignors`), and share the
rest. A group is of the protocol of its members; without members it is of neither.
"""
