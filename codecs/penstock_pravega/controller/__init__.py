"""Pravega's controller: the gRPC front, and the catalog of scopes, streams, transactions and epochs behind it.

Requests of several steps first record what they are about to do; a request that a crash interrupted is finished at the
next start (`controller.recovery`).
"""
