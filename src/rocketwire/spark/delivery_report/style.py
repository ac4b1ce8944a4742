"""What only the report's page draws: ridges of latencies, ways of retries, shares of queues."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
.ridge-row { align-items: end; } .ridge-plot { height: 50px; border-bottom: 1px solid var(--rule); }
.ridge-row .who b { margin: 0 0 -2px; } .ridge-plot .end { bottom: 46%; line-height: 1.3; }
.ridge { fill: var(--accent); opacity: .17; }
.mark { stroke: var(--ink); stroke-width: 1; opacity: .55; } .mark.far { stroke-dasharray: 2 3; }

.flow { display: grid; grid-template-columns: auto 1fr auto; column-gap: 12px; max-width: 760px;
  margin: 12px 0; }
.flow .from, .flow .to { position: relative; width: 150px; font-size: 13.5px; color: var(--soft); }
.flow span { position: absolute; transform: translateY(50%); left: 0; right: 0; line-height: 1.2;
  overflow-wrap: anywhere; }
.flow .from span { text-align: right; } .flow b { color: var(--ink); font-weight: 640; }
.stream { fill: var(--accent); opacity: .32; } .stream:hover { opacity: .6; }
.stream.again { fill: var(--quiet); }

.spread { padding-right: 0; } .plot.bars { height: 96px; border-bottom: 1px solid var(--rule); }
.free { fill: var(--accent); opacity: .35; }
.even { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; opacity: .6; fill: none; }
.even-name { position: absolute; right: 0; font-size: 11.5px; line-height: 1; color: var(--soft);
  padding: 0 0 4px 6px; pointer-events: none; text-shadow: 0 0 3px var(--page), 0 0 3px var(--page); }
.groups { position: relative; height: 22px; }
.group { position: absolute; top: 5px; text-align: center; font-size: 12px; line-height: 1.2;
  color: var(--quiet); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
@media (max-width: 760px) {
  .ridge-row { padding-top: 10px; } .ridge-row .plots { margin-left: 0; }
  .ridge-row .plot .end { display: block; left: auto; right: 0; bottom: 62%; text-align: right; }
  .ridges .ticks { margin-left: 0; }
  .flow .from, .flow .to { width: 84px; font-size: 12.5px; }
}
@media print { .ridge-row, .spread { break-inside: avoid; } }
"""
