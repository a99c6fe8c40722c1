"""What every page of ours is framed in: one file that opens offline, asks for nothing, and runs no script but its own.

In: sections of escaped HTML, and charts.  Out: the whole page as text.  The page's own policy lets only the scripts
run whose hashes it names.  Next: style.py
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
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
    """Return a page with charts; header and sections are HTML, escaped where they hold text."""
    from plotly.offline import get_plotlyjs

    return page_html(
        title,
        body="\n".join([header_html(title, header), *sections]),
        data={"figures": {chart.key: chart.figure for chart in charts}},
        scripts=(get_plotlyjs(), DRAW_SCRIPT),
        style=STYLE,
        # Images: data only, for plotly's own picture of a chart.  Styles inline: plotly sets them on what it draws.
        policy="img-src data: blob:; style-src 'unsafe-inline'",
    )


def header_html(title: str, html: str) -> str:
    """Return the head of a page: its title, then HTML."""
    return f"<header><h1>{escape(title)}</h1>{html}</header>"


def page_html(
    title: str, *, body: str, data: Mapping[str, Any], scripts: Sequence[str], style: str, policy: str
) -> str:
    """Return the whole page.

    body: HTML, escaped where it holds text. data: by name, what the scripts read from elements of that id.
    policy: what the page may load besides its scripts, as directives of a Content-Security-Policy.
    """
    sources = " ".join(hash_source(script) for script in scripts)
    blocks = [f'<script type="application/json" id="{key}">{json_for_script(data[key])}</script>' for key in data]
    lines = "\n".join([*blocks, *(f"<script>{script}</script>" for script in scripts)])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {sources}; {policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
{lines}
</body>
</html>
"""


def hash_source(text: str) -> str:
    """Return how a page's policy names a script or style that it lets in: by its SHA-256."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
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
