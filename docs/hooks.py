"""What the documentation needs beside its pages: equations as MathML, a complete list of pages.

Browsers draw MathML by themselves, so that no script has to come with the site or from the network.
"""

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)
NAME = re.compile(r"<m[io]>(ln|exp|max|min|sign|softplus|argmax)</m[io]>")
UNKNOWN = re.compile(r"\\[a-zA-Z]*|&(?!#?\w+;)")


def on_config(config: Any) -> Any:
    """List every decision, by its number."""
    docs = Path(config.docs_dir)
    decisions = [str(path.relative_to(docs)) for path in sorted(docs.glob("decisions/*.md"))]
    for section in config.nav:
        if "Decisions" in section:
            section["Decisions"] = decisions
    return config


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Every formula of a page as MathML."""

    def mathml(match: re.Match[str]) -> str:
        tex = unescape(match["tex"]).strip()
        display = "block" if match["tag"] == "div" else "inline"
        made = to_mathml(tex, display, page.file.src_path)
        return f'<{match["tag"]} class="arithmatex">{made}</{match["tag"]}>'

    return FORMULA.sub(mathml, html)


def to_mathml(tex: str, display: str, where: str) -> str:
    """A formula as MathML. What the converter does not know it copies: such a formula is refused."""
    try:
        made: str = convert(tex, display=display)
    except Exception as error:  # its own exceptions, and those of whatever it trips over
        raise PluginError(f"{where}: cannot convert the formula {tex!r}: {error!r}") from error
    unknown = UNKNOWN.search(made)
    if unknown:
        raise PluginError(f"{where}: the formula {tex!r} holds {unknown[0]!r}, which becomes no MathML")
    # The converter takes a minus after = for a difference, and the sign of "is drawn from" for a letter.
    made = made.replace("<mo>&#x0003D;</mo><mo>&#x02212;</mo>", '<mo>&#x0003D;</mo><mo form="prefix">&#x02212;</mo>')
    made = made.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    # Names of functions stand a little apart from what is before and after them.
    return NAME.sub(r'<mo lspace="0.17em" rspace="0.1em">\1</mo>', made)
