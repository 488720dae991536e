"""Routing of operations from a client's stream name to a back.

A router holds the configured routes in order; the first that matches listener, identity and name wins, and may rewrite
the name. A route's target can be swapped while sessions are open: new operations wait for the swap, sessions are
interrupted and begin again (`target`, `mirror`).

A token's scope and the route's `allow` decide what a client may do (`access`). Records that the other protocol cannot
carry are refused, enveloped or dropped, as the configuration says (`loss`). A listener's back is a stack of wrappers,
each a `BackWrapper`: injected faults outermost, then the view that a reload swaps, then tokens, then the router.
"""
