"""One self-contained HTML page per run: text, tables, figures, commands; it loads nothing from anywhere.

    Report("Greenshields", "1000 states").text("...").table(rows).figure(figure, "...", alt="...").write(path)

The page follows the reader's light or dark setting and fits a telephone: wide tables scroll in their box.
"""

from __future__ import annotations

import base64
import html
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from sciml.files import write_text


class Report:
    """A page that is built from top to bottom; every method returns the report.

    **Arguments:**

    - `title`: the heading, plain text.
    - `subtitle`: one line below it, plain text; default none.
    """

    def __init__(self, title: str, subtitle: str = ""):
        self.title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]
        if subtitle:
            self._parts.append(f'<p class="subtitle">{html.escape(subtitle)}</p>')

    def heading(self, text: str) -> Report:
        """A section heading, plain text."""
        return self._add(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> Report:
        """Paragraphs between blank lines; `- ` starts an item; `**bold**`, `` `code` ``, `[text](link)`."""
        for block in re.split(r"\n\s*\n", text.strip()):
            lines = [line.strip() for line in block.splitlines()]
            if all(line.startswith("- ") for line in lines):
                items = "".join(f"<li>{_inline(line[2:])}</li>" for line in lines)
                self._add(f"<ul>{items}</ul>")
            else:
                self._add(f"<p>{_inline(' '.join(lines))}</p>")
        return self

    def table(
        self,
        rows: Iterable[Mapping[str, Any] | Sequence[Any]],
        columns: Sequence[str] | Mapping[str, str] | None = None,
        caption: str = "",
        highlight: Mapping[str, Literal["min", "max"]] | None = None,
    ) -> Report:
        """A table; numbers are shown with four significant digits.

        **Arguments:**

        - `rows`: mappings (column to value), or sequences in the order of `columns`.
        - `columns`: names, or a mapping of key to heading; default the keys of the first row.
        - `caption`: one line above the table.
        - `highlight`: column key to `"min"` or `"max"`: the best value of the column is set in bold.
        """
        rows = list(rows)
        if columns is None:
            if not rows or not isinstance(rows[0], Mapping):
                raise ValueError("a table of sequences needs `columns`")
            columns = list(rows[0])
        headings = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        cells = [
            [
                _plain(value)
                for value in ([row.get(key) for key in headings] if isinstance(row, Mapping) else row)
            ]
            for row in rows
        ]
        best = {
            index: _best([row[index] for row in cells], (highlight or {})[key])
            for index, key in enumerate(headings)
            if key in (highlight or {})
        }
        numeric = [cells and all(map(_numeric, column)) for column in zip(*cells, strict=True)]
        head = "".join(
            f'<th scope="col"{" class=number" if right else ""}>{html.escape(str(name))}</th>'
            for name, right in zip_longest(headings.values(), numeric)
        )
        body = "".join(
            "<tr>" + "".join(_cell(value, _same(value, best.get(i))) for i, value in enumerate(row)) + "</tr>"
            for row in cells
        )
        title = f"<caption>{_inline(caption)}</caption>" if caption else ""
        return self._add(
            f'<div class="scroll" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def figure(self, figure: Any, caption: str, alt: str, *, dpi: int = 130) -> Report:
        """A picture inside the page.

        **Arguments:**

        - `figure`: a matplotlib figure, the bytes of a PNG, or the path of one.
        - `caption`: one or two sentences below it.
        - `alt`: what the picture shows, for those who do not see it; not empty.
        - `dpi`: resolution of a matplotlib figure.
        """
        if not alt.strip():
            raise ValueError("a figure needs an alt text that says what it shows")
        if isinstance(figure, str | Path):
            figure = Path(figure).read_bytes()
        elif not isinstance(figure, bytes):
            from sciml.plot import png

            figure = png(figure, dpi=dpi)
        if not figure.startswith(b"\x89PNG"):
            raise ValueError("a figure is a matplotlib figure, the bytes of a PNG or the path of one")
        source = f"data:image/png;base64,{base64.b64encode(figure).decode()}"
        width, height = struct.unpack(">II", figure[16:24])
        least = f"min-width: min(34rem, {width}px)"  # on a telephone the picture scrolls and stays legible
        return self._add(
            f'<figure><div class="scroll" tabindex="0"><img src="{source}" alt="{html.escape(alt)}" '
            f'width="{width}" height="{height}" style="{least}"></div>'
            f"<figcaption>{_inline(caption)}</figcaption></figure>"
        )

    def command(self, command: str) -> Report:
        """A command that the reader can copy."""
        return self._add(f'<pre class="scroll" tabindex="0"><code>{html.escape(command)}</code></pre>')

    def html(self) -> str:
        """The whole page."""
        body = "\n".join(self._parts)
        return _PAGE.format(title=html.escape(self.title), style=_STYLE, body=body)

    def write(self, path: str | Path) -> Path:
        """Writes the page (whole, or not at all) and returns its path."""
        return write_text(path, self.html())

    def _add(self, part: str) -> Report:
        self._parts.append(part)
        return self


def number(value: Any) -> str:
    """A value as a table shows it: four significant digits, integers in full, `–` for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    value = _plain(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")  # a thin space that does not break the line
    if isinstance(value, float):
        if not math.isfinite(value):
            return {math.inf: "∞", -math.inf: "-∞"}.get(value, "not finite")
        if value == 0 or 1e-3 <= abs(value) < 1e5:
            return f"{value:.4g}"
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return str(value)


def _cell(value: Any, best: bool) -> str:
    shown = _inline(value) if isinstance(value, str) else html.escape(number(value))
    shown = f"<strong>{shown}</strong>" if best else shown
    return f'<td class="number">{shown}</td>' if _numeric(value) else f"<td>{shown}</td>"


def _plain(value: Any) -> Any:
    """A Python number for a numpy or JAX one."""
    return value.item() if hasattr(value, "item") else value


def _numeric(value: Any) -> bool:
    return not isinstance(value, str | bool)


def _best(values: list[Any], which: str) -> Any:
    finite = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return (min if which == "min" else max)(finite, default=None)


def _same(value: Any, best: Any) -> bool:
    return best is not None and isinstance(value, int | float) and value == best


def _inline(text: str) -> str:
    text = html.escape(text)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"\[([^\]]+)\]\(((?!javascript:)[^)\s]+)\)", r'<a href="\2">\1</a>', text)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --back: #fff; --shade: #f5f7f9; --link: #0757b8; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6e9ec; --soft: #9aa4af; --line: #3a424b; --back: #14181d; --shade: #1e242b; --link: #7ab4ff; }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--back); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
p, ul { margin: .7rem 0; max-width: 46rem; }
a { color: var(--link); }
.subtitle, figcaption, caption { color: var(--soft); }
.scroll { overflow-x: auto; max-width: 100%; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .93rem; }
caption { text-align: left; padding: 0 0 .4rem; }
th, td { padding: .3rem .75rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { border-bottom-width: 2px; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tbody tr:nth-child(even) { background: var(--shade); }
figure { margin: 1.4rem 0; }
img { display: block; max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
figcaption { font-size: .93rem; margin-top: .4rem; max-width: 46rem; }
code { font: .9em ui-monospace, monospace; background: var(--shade); padding: .1em .3em; border-radius: 3px; }
pre { background: var(--shade); border: 1px solid var(--line); border-radius: 4px; padding: .7rem .9rem; }
pre code { padding: 0; background: none; }
"""
