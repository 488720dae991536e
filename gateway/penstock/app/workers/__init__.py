"""Several processes on one port, over one store (docs/workers.md).

The parent has the store: it sequences and commits. Each worker is a process that serves clients: it decodes,
encodes and compresses, reads records on disk itself, and asks the parent over a Unix socket for everything else.

    supervisor  binds sockets; starts, reloads, drains and stops the workers
      worker      one worker's process: restarted if it ends, killed if it hangs
      hub         the parent's end of one worker's socket: performs the worker's operations
    process     a worker: a complete gateway, except for its store and its management listener
      back        the worker's client of the store, as a `Back`
"""
