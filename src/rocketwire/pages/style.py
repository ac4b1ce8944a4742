"""How every page looks: one accent for data, one warm colour for trouble, the rest is ink."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --page: #fcfcfb; --ink: #1b1f24; --soft: #4d5560; --quiet: #656d79; --rule: #e4e6e9;
  --faint: #f3f4f5; --accent: #2b5fd9; --warm: #b45309; --warm-tint: #f7b267; --bad: #c0301c; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root {
  --page: #111417; --ink: #e9ecef; --soft: #b4bcc5; --quiet: #8b949e; --rule: #2b3138;
  --faint: #1a1e23; --accent: #7ba4ff; --warm: #f0a95b; --warm-tint: #b9762c; --bad: #ff7d6b; --good: #3fb950; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1080px; padding: 40px 28px 72px; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; }
header .kicker { color: var(--quiet); font-size: 13px; margin: 0 0 6px; overflow-wrap: anywhere; }
h1 { font-size: 34px; line-height: 1.15; letter-spacing: -.02em; margin: 0 0 22px; font-weight: 680;
  text-wrap: balance; }
h2 { font-size: 20px; letter-spacing: -.01em; margin: 60px 0 2px; font-weight: 650; }
h3 { font-size: 14px; margin: 26px 0 4px; font-weight: 620; overflow-wrap: anywhere; }
h3 span { color: var(--quiet); font-weight: 400; margin-left: 8px; }
p.about { color: var(--quiet); font-size: 14px; margin: 0 0 20px; max-width: 74ch; }
ul.summary { list-style: none; padding: 0; margin: 0 0 30px; max-width: 78ch; }
ul.summary li { padding: 3px 0 3px 18px; position: relative; overflow-wrap: anywhere;
  color: var(--soft); }
ul.summary li:first-child { color: var(--ink); font-size: 18px; padding-bottom: 8px; }
ul.summary li::before { content: ""; position: absolute; left: 0; top: 14px; width: 7px; height: 2px;
  background: var(--accent); }
ul.summary li:first-child::before { top: 17px; }
.warning { border-left: 3px solid var(--warm); background: var(--faint); padding: 10px 16px;
  margin: 0 0 12px; font-size: 14.5px; max-width: 82ch; overflow-wrap: anywhere; }
.warning b { color: var(--warm); font-weight: 620; }
dl.facts { display: grid; grid-template-columns: repeat(6, 1fr); margin: 0; gap: 0;
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); }
dl.facts div { padding: 14px 12px 12px 0; }
dl.facts dt { color: var(--quiet); font-size: 13px; }
dl.facts dd { margin: 0; font-size: 25px; font-weight: 640; letter-spacing: -.02em; line-height: 1.25; }
dl.facts small { display: block; color: var(--quiet); font-size: 12.5px; }
.bad { color: var(--bad); } .good { color: var(--good); } .warm { color: var(--warm); }

.row { display: grid; grid-template-columns: 142px 1fr; column-gap: 58px; padding-right: 66px; }
.panel { padding-top: 14px; padding-bottom: 14px; border-top: 1px solid var(--rule); }
.who { font-size: 13px; line-height: 1.5; color: var(--soft); min-width: 0; }
.who b { display: block; color: var(--ink); font-size: 14px; font-weight: 640; margin-bottom: 2px;
  overflow-wrap: anywhere; }
.who span { display: block; }
.plots, .plot, .ticks { position: relative; min-width: 0; }
.plot.tall { height: 118px; } .plot.low { height: 40px; margin-top: 12px; }
svg.draw, svg.hits { display: block; width: 100%; height: 100%; overflow: visible; }
svg.hits { position: absolute; inset: 0; }
svg path { vector-effect: non-scaling-stroke; }
.grid { stroke: var(--rule); stroke-width: 1; fill: none; }
.ribbon { fill: var(--accent); opacity: .17; } path.edge { fill: none; stroke: var(--accent);
  stroke-width: .8; opacity: .5; }
.median { fill: none; stroke: var(--accent); stroke-width: 1.7; stroke-linejoin: round; }
.away { fill: var(--warm-tint); opacity: .2; }
.flag { fill: var(--warm); }
.sent { fill: var(--accent); opacity: .38; } .failed { fill: var(--bad); }
.keyed { fill: var(--accent); opacity: .85; }
.hit { fill: transparent; } .hit:hover { fill: var(--ink); fill-opacity: .08; }
.y, .end, .tick { position: absolute; font-size: 11.5px; line-height: 1; color: var(--quiet);
  white-space: nowrap; }
.y { right: 100%; margin-right: 8px; transform: translateY(50%); }
.end { left: 100%; margin-left: 8px; transform: translateY(50%); color: var(--accent); }
.end.lane { bottom: 50%; color: var(--quiet); line-height: 1.15; white-space: normal; width: 58px; }
.ticks { height: 22px; } .tick { top: 6px; transform: translateX(-50%); }
.axis { border-top: 1px solid var(--rule); }

.scroll { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 14px; min-width: 100%; }
th { text-align: left; font-weight: 500; color: var(--quiet); font-size: 13px; vertical-align: bottom; }
th, td { padding: 7px 18px 7px 0; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
td.words { white-space: normal; min-width: 220px; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; } tr.strong td { font-weight: 640; }
td.both small { display: block; color: var(--quiet); font-weight: 400; }
td.meter { width: 34%; min-width: 120px; }
td.meter i { display: block; height: 10px; background: var(--accent); opacity: .75; border-radius: 1px;
  min-width: 1px; }
.note { color: var(--quiet); font-size: 13px; margin: 8px 0; max-width: 78ch; }
details { margin: 56px 0 0; font-size: 14.5px; color: var(--soft); max-width: 80ch; }
summary { cursor: pointer; color: var(--ink); font-weight: 620; }
details dt { font-weight: 620; color: var(--ink); margin-top: 12px; } details dd { margin: 0; }
footer { color: var(--quiet); font-size: 13px; margin-top: 40px; overflow-wrap: anywhere; }

@media (max-width: 760px) {
  body { padding: 24px 16px 56px; }
  h1 { font-size: 26px; } h2 { margin-top: 48px; }
  dl.facts { grid-template-columns: repeat(2, 1fr); } dl.facts div { padding: 10px 8px 8px 0; }
  dl.facts dd { font-size: 21px; }
  .row { display: block; padding-right: 0; }
  .plots, .ticks { margin-left: 52px; margin-right: 4px; }
  .who { display: flex; flex-wrap: wrap; column-gap: 12px; align-items: baseline;
    margin-bottom: 8px; font-size: 12.5px; }
  .who b { margin: 0; flex-basis: 100%; } .who span { display: inline; }
  .plot.tall { height: 92px; } .plot .end { display: none; }
  .tick.spare { display: none; } .tick.edge { transform: translateX(calc(4px - 100%)); }
}

/* Tables on a telephone: each row becomes a list of names and values, so that nothing scrolls sideways. */
@media (max-width: 760px) {
  .scroll { overflow-x: visible; }
  .scroll table, .scroll tbody, .scroll tr { display: block; }
  .scroll tr:has(> th) { display: none; }
  .scroll tr { padding: 8px 0; border-bottom: 1px solid var(--rule); }
  .scroll td, .scroll td.number, .scroll td.words, .scroll td.meter { display: flex;
    justify-content: space-between; column-gap: 16px; width: auto; min-width: 0; padding: 2px 0;
    border: 0; text-align: right; white-space: normal; overflow-wrap: anywhere; }
  .scroll td::before { content: attr(data-name); color: var(--quiet); font-weight: 400;
    text-align: left; overflow-wrap: normal; }
  .scroll td.meter { display: block; }
}
@media print { body { max-width: none; padding: 0; } .panel { break-inside: avoid; } }
"""
