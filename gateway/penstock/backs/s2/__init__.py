"""Servers that speak S2, as backs: S2S sessions, unary protobuf, the control plane (S2 fact sheet, sections 1 and 2).

`penstock.backs.s2.back.open_s2(settings, upstream)` opens a whole back, `penstock.backs.s2.sse.open_s2_sse(settings,
upstream)` a read-only source over server-sent events. Both are async context managers that give a
`penstock.backs.base.Back`; `settings` is `penstock.backs.s2.settings.S2BackSettings`, `upstream` a
`penstock.backs.upstream.Upstream`.
"""
