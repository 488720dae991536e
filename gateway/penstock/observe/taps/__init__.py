"""Taps: the traffic of each connection, as capture events, for recordings and live views."""
