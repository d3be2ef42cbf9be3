"""The style of the page, light or dark as the reader's system is."""

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c2733; --weak: #5b6b7b; --rule: #d8dee5; --card: #f5f7f9;
  --compute: #9db2c6; --wait: #d1495b; --agree: #e0a030; --move: #00798c; --hot: #c0273c; --good: #2e7d4f; }
@media (prefers-color-scheme: dark) { :root { --back: #14191f; --text: #e4e9ee; --weak: #9aa8b6; --rule: #333d48;
  --card: #1d242c; --compute: #5f7890; --wait: #e0606f; --agree: #e0b050; --move: #2fa6b8; --hot: #ff6a7c;
  --good: #5cc08a; } }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h1 span { font-size: 14px; padding: 2px 10px; border-radius: 10px; vertical-align: 3px; color: var(--back);
  background: var(--weak); }
h1 .succeeded { background: var(--good); } h1 .failed { background: var(--wait); }
h2 { font-size: 18px; margin: 36px 0 10px; border-bottom: 1px solid var(--rule); padding-bottom: 4px; }
h3 { font-size: 15px; margin: 20px 0 6px; }
.note { color: var(--weak); font-size: 13px; margin: 6px 0; overflow-wrap: anywhere; }
code, pre { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
pre { background: var(--card); padding: 12px; border-radius: 6px; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin-top: 14px; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 16px; }
.tile b { display: block; font-size: 20px; } .tile span { color: var(--weak); font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 18px; font-size: 13px; margin: 4px 0 8px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 6px; }
li { margin: 6px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin: 8px 0; width: 100%; }
th { text-align: left; color: var(--weak); font-weight: 600; vertical-align: bottom; }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--rule); }
td { overflow-wrap: anywhere; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.number { white-space: normal; }
.worse { color: var(--wait); } .better { color: var(--good); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--text); font: 13px system-ui, sans-serif; }
svg .tick { fill: var(--weak); font-size: 12px; } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--rule); } svg rect { shape-rendering: crispEdges; }
svg .cold { fill: var(--card); } svg .hot { fill: var(--hot); }
svg .line { fill: none; stroke-width: 1.5; } svg .line.move { stroke: var(--move); } svg .dot { fill: var(--move); }
.fill.compute { fill: var(--compute); background: var(--compute); }
.fill.wait { fill: var(--wait); background: var(--wait); }
.fill.agree { fill: var(--agree); background: var(--agree); }
.fill.move { fill: var(--move); background: var(--move); }
"""
