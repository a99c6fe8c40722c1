"""What every page of ours is framed in: one file that opens offline, asks for nothing, and runs no script but its own.

In: sections of escaped HTML, and charts.  Out: the whole page as text.  The page's own policy lets only the three
scripts run whose hashes it names.  Next: style.py
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from typing import Any, Literal

from bertkit.report.charts import Chart
from bertkit.report.style import STYLE

# Draws the figures of the page's data block and follows the window's width; drag to zoom, double-click to go back.
DRAW_SCRIPT = """
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [key, figure] of Object.entries(figures)) {
  Plotly.newPlot("chart-" + key, figure.data, figure.layout,
    {responsive: true, displayModeBar: false});
}
"""


def plotly_is_installed() -> bool:
    """Return whether the extra `report` is there, without importing it."""
    return find_spec("plotly") is not None


def framed_html(title: str, *, header: str, sections: Sequence[str], charts: Sequence[Chart]) -> str:
    """Return the page; header and sections are HTML, escaped where they hold text."""
    from plotly.offline import get_plotlyjs

    library = get_plotlyjs()
    sources = " ".join(_hash(script) for script in (library, DRAW_SCRIPT))
    # Images: data only, for plotly's own picture of a chart.  Styles inline: plotly sets them on what it draws.
    policy = f"default-src 'none'; script-src {sources}; img-src data: blob:; style-src 'unsafe-inline'"
    body = "\n".join(sections)
    figures = json_for_script({chart.key: chart.figure for chart in charts})
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1>{header}</header>
{body}
</main>
<script type="application/json" id="figures">{figures}</script>
<script>{library}</script>
<script>{DRAW_SCRIPT}</script>
</body>
</html>
"""


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def json_for_script(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def section_html(title: str, title_zh: str, html: str) -> str:
    """Return a section under its heading in two languages."""
    heading = f'<h2>{escape(title)} <span class=zh lang="zh">{escape(title_zh)}</span></h2>'
    return f"<section>\n{heading}\n{html}\n</section>"


def chart_html(chart: Chart, *, kind: Literal["curves", "histogram"]) -> str:
    """Return the place where a chart is drawn, under its caption."""
    label = escape(f"{chart.title}: {'curves over steps' if kind == 'curves' else kind}")
    return (
        f"<p>{escape(chart.caption)}</p>\n"
        f'<div class="chart {kind} {chart.key}" id="chart-{chart.key}" role="img" aria-label="{label}"></div>'
    )
