"""The interfaces and values that every other room shares. It imports no other room.

A front asks a `Back` (`back`) to perform operations of `penstock.model.operations`; it cannot tell whether the back is
the embedded store or a client of another server. `Back` has an answer for every ability, so nothing is probed. What
stands between a front and a back is a `BackWrapper`, which delegates all that it does not change. `passthrough` is a
session whose frames are forwarded unread. `native` is the interface of a server without sequence numbers;
`penstock.backends` adds those.

The client's identity travels in context variables (`identity.CLIENT`), not in arguments: the code between a front and a
back need not know it, and trio gives every child task its parent's context. Each protocol maps its stream names to
`StreamRef` and back, one to one; `internal_names` are those that no client lists.
"""
