"""Recordings played again: as the recorded clients (`penstock replay`), and as the server (`penstock mock`)."""
