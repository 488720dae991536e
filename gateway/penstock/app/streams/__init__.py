"""Streams for people: positions and records, as `penstock append`, `read` and `follow` and the management listener take
and show them."""
