"""The process: configuration, wiring, reload, the management listener.

`config` reads TOML into frozen structs and knows no other room's objects. `bootstrap` builds the parts that a
configuration names. `server` runs them in nested scopes, in this order: recordings, store, backs, mirrors, listeners.
`reload` builds the new parts first, and swaps them in only when nothing can fail any more.
"""
