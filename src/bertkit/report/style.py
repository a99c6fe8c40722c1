"""How the page looks: one column, system fonts, wide tables scroll inside themselves, a phone is wide enough.

In: nothing.  Out: CSS.  Next: page.py
"""

STYLE = """
:root { color-scheme: light; --ink: #1f2937; --soft: #6b7280; --line: #e5e7eb; --paper: #ffffff; --accent: #0f766e; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #f6f7f9; color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", "Noto Sans CJK SC",
  "Microsoft YaHei", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
header { margin-bottom: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 0 0 .25rem; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem 1.25rem;
  margin-bottom: 1.1rem; }
section > p { margin: 0 0 .6rem; color: var(--soft); font-size: .92rem; max-width: 44rem; }
.zh { color: var(--soft); font-weight: 400; font-size: .88em; white-space: nowrap; }
.command { margin: 0 0 .5rem; }
code { font: .86em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono CJK SC", monospace;
  overflow-wrap: anywhere; }
.command code { display: block; background: #eceff3; border-radius: .4rem; padding: .5rem .7rem; }
.note { color: #92400e; font-size: .9rem; margin: .25rem 0; }
.chart { width: 100%; height: 24rem; }
.chart.losses { height: 30rem; }
.chart.histogram { height: 16rem; }
.chart.learning_rate { height: 17rem; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 500; vertical-align: top; }
th, td { padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
tr:last-child > * { border-bottom: 0; }
.results td { text-align: right; white-space: nowrap; padding-right: 0; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.sample { margin: .9rem 0; border: 1px solid var(--line); border-radius: .4rem; border-collapse: separate;
  border-spacing: 0; }
.sample th { width: 6.5rem; padding-left: .7rem; color: var(--soft); font-size: .85rem; font-weight: 400;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.sample caption { caption-side: bottom; text-align: left; color: var(--soft); font-size: .8rem; padding: .3rem 0; }
.settings th { width: 45%; }
.scroll { overflow-x: auto; }
.numbers th[scope=row] { width: 55%; }
.numbers td { text-align: right; white-space: nowrap; padding-left: .8rem; font-variant-numeric: tabular-nums; }
.numbers thead th { text-align: right; white-space: nowrap; color: var(--soft); font-size: .85rem;
  padding-left: .8rem; }
.instance { border-top: 1px solid var(--line); padding: .7rem 0; }
.where { color: var(--soft); font-size: .85rem; margin: 0; }
.instance h3 { font-size: 1rem; font-weight: 600; margin: 0 0 .3rem; }
.tokens { font-size: .88rem; width: auto; }
.tokens th, .tokens td { padding: .12rem 1.1rem .12rem 0; white-space: nowrap; }
.tokens thead th { color: var(--soft); font-weight: 400; }
.tokens tr.hidden > * { background: #fef9c3; }
mark { border-radius: .25em; padding: 0 .15em; color: inherit; }
mark.gap { background: #e5e7eb; color: var(--soft); }
mark.hidden { background: #fde68a; }
mark.right { background: #bbf7d0; }
mark.wrong { background: #fecaca; }
mark.missed { background: #fed7aa; }
mark small { font-size: .68em; opacity: .75; margin-left: .25em; }
section > h3 { font-size: .95rem; margin: 1rem 0 .2rem; }
.confusion { width: auto; }
.confusion th { color: var(--soft); font-size: .85rem; padding: .25rem .5rem; max-width: 9rem; }
.confusion td { text-align: right; padding: .25rem .5rem; border: 1px solid var(--paper);
  font-variant-numeric: tabular-nums; }
.confusion .none { color: var(--soft); }
.good-1 { background: #dcfce7; } .bad-1 { background: #fee2e2; }
.good-2 { background: #c6f3d5; } .bad-2 { background: #fdcccc; }
.good-3 { background: #b0eac3; } .bad-3 { background: #fbb6b6; }
.good-4 { background: #9ae1b1; } .bad-4 { background: #f9a0a0; }
.good-5 { background: #84d89f; } .bad-5 { background: #f78a8a; }
.good-6 { background: #6ecf8d; } .bad-6 { background: #f57474; }
.good-7 { background: #58c67b; } .bad-7 { background: #f35e5e; }
.good-8 { background: #42bd69; } .bad-8 { background: #f14848; }
.good-9 { background: #2cb457; } .bad-9 { background: #ef3232; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; font-weight: 500; }
@media (max-width: 40rem) {
  main { padding: 1rem .6rem 3rem; }
  section { padding: .9rem .8rem; }
  .chart { height: 20rem; }
  .chart.histogram { height: 14rem; }
  .numbers .zh { display: block; white-space: normal; }
  .numbers th[scope=row] { width: auto; }
  .numbers td, .numbers thead th { padding: .35rem .3rem .35rem 0; }
  .chart.losses { height: 28rem; }
  .sample th { width: 4.6rem; padding-left: .4rem; font-size: .78rem; }
}
"""
