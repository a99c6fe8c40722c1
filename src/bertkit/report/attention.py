"""Attention as a page: lines between tokens for one head, and all heads small.

In: tokens and every head's weights.  Out: HTML that opens offline and asks for nothing.  Next: attention_script.py
"""

import base64
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from bertkit.report.attention_script import ATTENTION_SCRIPT, ATTENTION_STYLE
from bertkit.report.frame import hash_source, header_html, page_html, section_html
from bertkit.report.samples import language_of
from bertkit.report.style import STYLE

STEPS = 255  # a weight on the page is a whole number of 1/255


def attention_html(
    tokens: Sequence[str],
    *,
    token_type_ids: Sequence[int],
    weights: Sequence[NDArray[np.float32]],
    heads: Sequence[Sequence[int]],
    texts: Sequence[str],
    model: str,
) -> str:
    """Return the page.

    tokens, token_type_ids: of the (seq,) tokens; 0: A, 1: B.
    weights: for each layer (heads, seq, seq); [h, i, j]: from token i to token j.
    heads: for each layer the numbers of its heads, of which some may have been pruned.
    texts: the one or two as they were given; model: the name it goes by.
    """
    title = "Attention"
    shown = "".join(f"<p{language_of(text)}>{escape(text)}</p>\n" for text in texts)
    facts = f"{len(heads)} layers × {max(map(len, heads))} heads, {len(tokens)} tokens; model {model}"
    header = f"\n{shown}<p class=where>{escape(facts)}</p>"
    style = STYLE + ATTENTION_STYLE
    whole = [np.rint(layer * STEPS).clip(0, STEPS).astype(np.uint8).tobytes() for layer in weights]
    data = {
        "tokens": list(tokens),
        "segments": list(token_type_ids),
        "heads": [list(numbers) for numbers in heads],
        "weights": base64.b64encode(b"".join(whole)).decode("ascii"),
    }
    return page_html(
        title,
        body="\n".join([header_html(title, header), _model_view(), _head_view(len(texts) == 2)]),
        data={"attention": data},
        scripts=(ATTENTION_SCRIPT,),
        style=style,
        policy=f"img-src data:; style-src {hash_source(style)}",
    )


def _head_view(is_pair: bool) -> str:
    parts = (("all", "all"), ("0-0", "A → A"), ("0-1", "A → B"), ("1-0", "B → A"), ("1-1", "B → B"))
    options = "".join(f'<option value="{value}">{label}</option>' for value, label in parts)
    part = f'<label>tokens <select id="part">{options}</select></label>' if is_pair else ""
    return section_html(
        "One head",
        "一个注意力头",
        f"""<p>A line goes from a token to one that it attends to; the stronger, the darker. Point at a token to see its
own lines and their weights; click to keep them. Layers and heads count from 0.</p>
<noscript><p class=note>This page draws with its own script, which is switched off here.</p></noscript>
<div class=controls id="controls">
<label>layer <select id="layer"></select></label>
<label>head <select id="head"></select></label>
{part}
<label><input type="checkbox" id="specials" checked> with [CLS] and [SEP]</label>
<span>darkest line: <output id="strongest"></output></span>
</div>
<div class=view id="view"><ol class="side from" id="from" aria-label="from"></ol><canvas id="lines" role="img"
aria-label="lines from each token to those it attends to"></canvas><ol class="side to" id="to"
aria-label="to"></ol></div>""",
    )


def _model_view() -> str:
    return section_html(
        "All heads",
        "所有注意力头",
        """<p>A row is a layer, a square a head: from the tokens downwards to the tokens across. Click one to see it
below. Every square has the same scale; for many tokens it shows the strongest weight of neighbours.</p>
<div class=scroll><div id="grid" class=grid></div></div>""",
    )
