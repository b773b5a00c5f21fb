"""Style of the report: light and dark, for a wide screen, a phone and paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6576; --paper: #fff; --line: #d8dde6; --tile: #f4f6f9;
  --good: #1a8f5a; --bad: #c8322b; --one: #2f6fde; --two: #c98a12; --three: #8a56c9; --four: #1c8f9c; --five: #c14a86; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e8ebf0; --quiet: #a3acba; --paper: #14181f;
  --line: #2d3440; --tile: #1d232d; --good: #4cc38a; --bad: #ff7a70; --one: #7ba7ff; --two: #f2c14e; --three: #c4a0f5;
  --four: #5fd0dc; --five: #f291bf; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 66rem;
  margin: 1.2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .3rem; } p { margin: .4rem 0; max-width: 46rem; }
.quiet { color: var(--quiet); font-size: .9rem; } .good { color: var(--good); } .bad { color: var(--bad); }
.verdict { font-size: 1.35rem; font-weight: 650; line-height: 1.3; margin: .4rem 0 1rem; }
.tiles { display: grid; grid-template-columns: repeat(6, 1fr); gap: .6rem; }
.tiles div { background: var(--tile); border-radius: .5rem; padding: .6rem .8rem; min-width: 0; }
.tiles b { display: block; font-size: 1.6rem; line-height: 1.15; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--quiet); font-size: .85rem; line-height: 1.25; display: block; }
nav { display: flex; flex-wrap: wrap; gap: .2rem .9rem; font-size: .9rem; margin: .8rem 0; } a { color: var(--one); }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1rem; }
figure { margin: .4rem 0; min-width: 0; } figcaption { font-size: .85rem; color: var(--quiet); }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--ink); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; width: 100%;
  margin: .5rem 0; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: baseline; }
th { font-weight: 600; vertical-align: bottom; } th, td { overflow-wrap: normal; } .word { text-align: left; }
td.word { overflow-wrap: anywhere; }
code { font-size: .92em; } summary { cursor: pointer; padding: .3rem 0; }
@media (max-width: 48rem) { .tiles { grid-template-columns: repeat(2, 1fr); }
  table, tbody { display: block; } thead { display: none; }
  tr { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); border-bottom: 1px solid var(--line);
    padding: .35rem 0; }
  td, .word { text-align: left; border: 0; padding: .1rem .2rem; min-width: 0; overflow-wrap: anywhere; }
  td.long { grid-column: 1 / -1; } td:first-child { font-weight: 600; grid-column: 1 / -1; }
  td::before { content: attr(data-is); display: block; color: var(--quiet); font-size: .75rem; font-weight: 400; } }
@media print { body { font-size: 12px; max-width: none; margin: 0; } nav { display: none; }
  h2 { break-after: avoid; } figure, tr, .tiles { break-inside: avoid; } a { color: inherit; } }
"""
