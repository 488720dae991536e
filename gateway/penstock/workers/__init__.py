"""Several processes on one port, over one store (docs/workers.md).

The parent has the store: it sequences and commits. Each worker serves clients, in a process of its own: it decodes,
encodes and compresses, reads what is on disk by itself, and asks the parent over a Unix socket for everything else.

    supervisor  binds, starts workers, restarts one that ends; drains and stops them
      hub       the parent's end of one worker's socket: carries out what the worker asks for
    process     a worker: a whole gateway, but for its store and its management listener
      back      the worker's way to the store, as a `Back`
"""
