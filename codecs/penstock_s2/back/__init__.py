"""Servers that speak S2, as backs: S2S sessions, unary protobuf, the control plane (S2 fact sheet, sections 1 and 2).

`penstock_s2.back.back.open_s2(settings, upstream)` opens a whole back,
`penstock_s2.back.sse.open_s2_sse(settings, upstream)` a read-only source over server-sent events. Both are
async context managers that give a `penstock.core.back.Back`; `settings` is
`penstock_s2.back.settings.S2BackSettings`, `upstream` a `penstock.net.upstream.Upstream`.
"""
