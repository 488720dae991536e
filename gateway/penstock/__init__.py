"""Penstock: a multi-protocol gateway for append-only streams of records.

Who talks to whom: sockets, fronts, backs, the embedded store, configuration and the command line. How each
protocol is spelled lives in `penstock_codecs`.
"""
