"""Text that others wrote, made harmless for terminals, JSON and HTML; and short tables of it for notebooks."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

# Characters that turn the direction of the text after them.
_TURNS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def shown(text: object) -> str:
    r"""Text in one line as it can be shown: what controls a terminal or turns lines round is spelled out.

    Examples
    --------
    >>> print(shown(f"a{chr(9)}b{chr(27)}[2J"))
    a b\x1b[2J
    """
    return _NOT_PLAIN.sub(_spelled_out, str(text))


def shown_json(text: str) -> str:
    r"""The same JSON with characters escaped that control a terminal or turn text round.

    Examples
    --------
    >>> print(shown_json(f'{{"name": "{chr(0x202E)}é"}}'))
    {"name": "\u202eé"}
    """
    return _NOT_PLAIN.sub(lambda found: json.dumps(found[0])[1:-1] if _acts(found[0]) else found[0], text)


# Most text is plain, and passes quickly.
_NOT_PLAIN = re.compile(r"[^ -~]")


def _spelled_out(found: re.Match[str]) -> str:
    character = found[0]
    if character.isspace():
        return " "
    return character.encode("unicode_escape").decode() if _acts(character) else character


def _acts(character: str) -> bool:
    """Whether a character is a control (no newline), turns text, or is a surrogate, unassigned or private."""
    if character == "\n":
        return False
    return character in _TURNS or unicodedata.category(character) in ("Cc", "Cs", "Cn", "Co")


def cut(text: str, most: int) -> str:
    """Text of at most `most` characters; the middle of longer text is left out.

    Examples
    --------
    >>> cut("a_name_that_goes_on", 9)
    'a_nam…_on'
    """
    text = shown(text)
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - 1 - tail]}\u2026{text[len(text) - tail :]}"


def escaped(text: object) -> str:
    """Text as HTML that shows it, wherever it stands: between tags or in quotes.

    Examples
    --------
    >>> escaped("<script>")
    '&lt;script&gt;'
    """
    return html.escape(shown(text), quote=True)


def preformatted(text: str) -> str:
    """Lines of text as they are, as HTML."""
    lines = "\n".join(escaped(line) for line in text.split("\n"))
    return f'<pre style="white-space:pre-wrap">{lines}</pre>'


def card(title: str, rows: Iterable[tuple[str, str]], notes: Sequence[str] = ()) -> str:
    """A short table with a caption, for notebooks; it has no colours, so that it fits their theme.

    Examples
    --------
    >>> card("SW_2", [("distance", "<1")]).count("&lt;1")
    1
    """
    left = 'style="text-align:left;vertical-align:top"'
    body = "".join(
        f'<tr><th scope="row" {left}>{escaped(name)}</th><td {left}>{escaped(value)}</td></tr>'
        for name, value in rows
    )
    below = "".join(f"<p>{escaped(note)}</p>" for note in notes)
    plain = "text-align:left;font-weight:bold;color:inherit;white-space:nowrap"
    caption = f'<caption style="{plain}">{escaped(title)}</caption>'
    return f'<div class="orthoslice"><table>{caption}<tbody>{body}</tbody></table>{below}</div>'
