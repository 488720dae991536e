"""Streams by name: what `penstock append`, `read`, `follow`, `streams`, `create`, `delete` and `trim` work on."""
