"""Fault injection, for testing clients; without configured faults it does nothing."""
