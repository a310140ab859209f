"""How the page looks: light and dark, on a phone and on paper."""

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d1d1f; --pale: #5c5c66; --line: #dcdce0; --card: #f5f5f7;
  --mark: #fff2cc; --good: #1a7f37; --bad: #c62828; --warn: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #141417; --ink: #ececf0; --pale: #a0a0aa; --line: #35353c; --card: #1f1f24;
    --mark: #4a3d12; --good: #56d364; --bad: #ff7b72; --warn: #e3b341; }
  figure img, .line { filter: invert(0.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 76rem; padding: 1.2rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.2rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; border-bottom: 1px solid var(--line); padding-bottom: 0.2rem; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 0.4rem; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: 0.5rem 0; }
.pale, figcaption, footer { color: var(--pale); }
.done { color: var(--good); } .diverged, .failed { color: var(--bad); }
.died, .interrupted, .running { color: var(--warn); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 0.6rem; margin: 1rem 0; }
.card { background: var(--card); border-radius: 0.5rem; padding: 0.6rem 0.8rem; }
.card b { display: block; font-size: 1.2rem; line-height: 1.3; overflow-wrap: anywhere; }
.card span { color: var(--pale); font-size: 0.85rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 0.8rem; }
figure { margin: 0.4rem 0; }
figure img { display: block; width: 100%; height: auto; background: #ffffff; border-radius: 0.3rem; }
.wide, .map { overflow-x: auto; } .map img { min-width: 42rem; }
table { border-collapse: collapse; font-size: 0.92rem; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--pale); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 600; }
.text { text-align: left; } .number { text-align: right; white-space: nowrap; }
.line { margin-right: 0.5rem; vertical-align: 0.15rem; }
mark { background: var(--mark); color: inherit; padding: 0 0.2rem; border-radius: 0.2rem; }
details { margin: 0.6rem 0; } summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 0.6rem; font-size: 0.85rem; }
@media (max-width: 36rem) { body { padding: 0.8rem; } th, td { padding: 0.2rem 0.45rem; } }
@media print {
  :root { color-scheme: light; --paper: #ffffff; --ink: #000000; --pale: #444444; --line: #bbbbbb; --card: #f2f2f2;
    --mark: #fff2cc; --good: #1a7f37; --bad: #c62828; --warn: #9a6700; }
  html { font-size: 11px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  figure img, .line { filter: none; }
  figure, .card, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .wide, .map { overflow: visible; }
  .map img { min-width: 0; }
}
"""
