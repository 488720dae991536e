"""How the page looks: readable on light and dark, on a screen and on paper."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #fcfcfa; --ink: #1c2530; --soft: #5a6672; --line: #d5d9dd; --band: #f1f3f4; --bar: #b9d3ea;
  --good: #1a6b35; --good-back: #dff2e3; --doubt: #7a5200; --doubt-back: #fbeecb; --bad: #a01818; --bad-back: #fbe0de;
  --s0: #2a6fb0; --s1: #d2691e; --s2: #3a8a4d; --s3: #a33b8f; --s4: #8a7a14; --s5: #5b5fc7; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181d; --ink: #e3e7eb; --soft: #9aa6b2; --line: #3a434d; --band: #1c2229; --bar: #264b6e;
  --good: #8fd8a3; --good-back: #17361f; --doubt: #efc872; --doubt-back: #3d3011; --bad: #ff9d96; --bad-back: #471b1b;
  --s0: #6db3f2; --s1: #f2994a; --s2: #6fcf86; --s3: #dd86cb; --s4: #d6c44a; --s5: #a3a6ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 80rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .2rem; }
p { margin: .3rem 0 .6rem; max-width: 60rem; }
.soft, .more, .absent { color: var(--soft); }
.absent { font-style: italic; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .6rem 0 0; }
a { color: var(--s0); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .3rem 0; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); vertical-align: bottom; }
th.text, td.text { text-align: left; }
tbody th { font-weight: 500; }
.name { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; max-width: 22rem; }
tbody tr:hover { background: var(--band); }
.verdict { display: inline-block; padding: 0 .55em; border-radius: 1em; font-weight: 600; }
.good { color: var(--good); background: var(--good-back); }
.doubtful { color: var(--doubt); background: var(--doubt-back); }
.bad { color: var(--bad); background: var(--bad-back); }
.bar { width: 9rem; text-align: left; }
.codes { white-space: normal; min-width: 16rem; }
.bar span { display: block; height: .8em; margin-top: .35em; background: var(--bar); border-radius: 2px;
  min-width: 1px; }
.plot { display: block; width: 100%; max-width: 60rem; height: auto; margin: .3rem 0; font-family: inherit; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; list-style: none; padding: 0; margin: .2rem 0;
  font-size: .85rem; }
.key i { display: inline-block; width: 1.3em; height: .7em; border-radius: 2px; margin-right: .4em; }
code { font: .9em ui-monospace, monospace; }
@media print { body { max-width: none; } nav { display: none; } }
""".strip()
"""The whole of it."""
