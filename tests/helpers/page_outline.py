"""A page as its elements and text, and texts that would be markup or script if they were not escaped."""

from html.parser import HTMLParser

from sample_run import HOSTILE

PAYLOADS = [
    HOSTILE,
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus=alert(1) x='",
    "javascript:alert(1)",
    "<!--<script>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;",
    "\u2028<script>明月</script>",
    "</style></title></textarea><script>alert(1)</script>",
    "<a href='https://example.org'>明月</a>",
    "{{constructor.constructor('alert(1)')()}}",
    "\x00<script>alert(1)</script>",
]


class Outline(HTMLParser):
    """Elements and texts of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and data.strip():
            self.scripts.append(data)
        else:
            self.text += data


def outline_of(html: str) -> Outline:
    outline = Outline()
    outline.feed(html)
    return outline
