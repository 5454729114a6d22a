"""A report as one HTML page that needs nothing else: no network, no script, no font."""

import re
from html import escape

from anchordot_jax.report.blocks import (
    Block,
    Caution,
    Code,
    Example,
    Examples,
    Figure,
    Item,
    Report,
    Section,
    Table,
    Text,
)

STYLE = """\
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1b1b1b; line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial,
  sans-serif; overflow-wrap: break-word; }
header, main, nav, footer { max-width: 62rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1.5rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .5rem;
  border-top: 1px solid #d5d5d5; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { max-width: 44rem; margin: .6rem 0; }
a { color: #004f86; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none;
  padding: 0; margin: .8rem 0; }
nav a { display: inline-block; padding: .15rem 0; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: #fff; padding: .3rem; }
.warning { border-left: .3rem solid #b35900; background: #fff4e6;
  padding: .5rem .8rem; max-width: 44rem; }
.figures { display: grid; gap: 1rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { margin: .6rem 0; max-width: 30rem; }
figure svg { width: 100%; height: auto; display: block; }
figcaption, .caption { font-size: .88rem; color: #3d3d3d; }
.caption { margin: 1rem 0 .3rem; }
.scroll { overflow-x: auto; margin: 0 0 .8rem; }
.scroll:focus-visible { outline: 2px solid #004f86; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e2e2e2; text-align: right;
  vertical-align: top; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead th { border-bottom: 2px solid #8a8a8a; }
tbody th { font-weight: 500; white-space: normal; min-width: 5rem; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; font-size: .8rem; }
.example { border: 1px solid #d5d5d5; border-radius: .3rem; padding: .2rem .8rem .7rem;
  margin: .8rem 0; break-inside: avoid; }
.items { display: grid; gap: .5rem; margin: .5rem 0 0; padding: 0; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
.item { border: 1px solid #e2e2e2; border-radius: .2rem; padding: .4rem;
  font-size: .84rem; min-width: 0; }
.query { max-width: 30rem; background: #f4f7fa; }
.pair { display: grid; gap: .5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); }
.pair .items { margin: 0; grid-template-columns: 1fr; }
.right { border: 2px solid #00694f; }
.item b, .item span { display: block; }
.item .note { color: #3d3d3d; }
.item .mark { color: #00694f; font-weight: 600; }
.item img, .item svg { display: block; max-width: 100%; max-height: 9rem; width: auto;
  margin: 0 0 .3rem; }
footer { margin-top: 2rem; padding-bottom: 2rem; font-size: .88rem; color: #3d3d3d; }
@media print {
  body { font-size: 10pt; }
  nav, .skip { display: none; }
  header, main, footer { max-width: none; padding: 0; }
  h2, h3 { break-after: avoid; }
  figure, .example, tr, .warning { break-inside: avoid; }
  .scroll { overflow: visible; }
  th, td { white-space: normal; }
  table { font-size: 8.5pt; }
  th, td { padding: .15rem .35rem; }
  .figures { grid-template-columns: 1fr 1fr; }
  .items { grid-template-columns: repeat(5, 1fr); }
  .pair { grid-template-columns: 1fr 1fr; }
  a { color: inherit; text-decoration: none; }
}
"""


def page(report: Report, *, made_by: str = "anchordot report") -> str:
    """Return the whole page; its last line says what made it."""
    links = "".join(
        f'<li><a href="#{section.name}">{escape(section.title)}</a></li>'
        for section in report.sections
    )
    body = "\n".join(_section(section) for section in report.sections)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(report.title)}</title>
<style>
{STYLE}</style>
</head>
<body>
<header>
<a class="skip" href="#main">Skip to the report</a>
<h1>{escape(report.title)}</h1>
<p>{escape(report.lead)}</p>
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="main">
{body}
</main>
<footer><p>Made by {escape(made_by)}.</p></footer>
</body>
</html>
"""


def _section(section: Section) -> str:
    parts, figures = [], []
    for block in section.blocks:
        if isinstance(block, Figure):
            figures.append(_figure(block))
            continue
        parts += _row_of(figures)
        figures = []
        parts.append(_block(block))
    inner = "\n".join([*parts, *_row_of(figures)])
    return (
        f'<section id="{section.name}" aria-labelledby="{section.name}-title">\n'
        f'<h2 id="{section.name}-title">{escape(section.title)}</h2>\n{inner}\n'
        f"</section>"
    )


def _row_of(figures: list[str]) -> list[str]:
    """Return figures that follow one another side by side."""
    return [f'<div class="figures">{"".join(figures)}</div>'] if figures else []


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Caution(text):
            return f'<p class="warning"><strong>Warning.</strong> {escape(text)}</p>'
        case Code(caption, text):
            return (
                f"<p>{escape(caption)}</p>\n"
                f'<pre tabindex="0" role="region" aria-label="{escape(caption)}">'
                f"{escape(text)}</pre>"
            )
        case Table():
            return _table(block)
        case Figure():
            return _figure(block)
        case Examples(caption, examples):
            shown = "\n".join(_example(example) for example in examples)
            return f"<p>{escape(caption)}</p>\n{shown}"


def _table(table: Table) -> str:
    heads = "".join(_head(head) for head in table.heads)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    caption = escape(table.caption)
    # Outside the part that scrolls, so that a phone shows all of it.
    return (
        f'<p class="caption">{caption}</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f'<table aria-label="{caption}">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _head(head: str) -> str:
    """Return a column's head; an empty corner is no header."""
    return f'<th scope="col">{escape(head)}</th>' if head else "<td></td>"


def _figure(figure: Figure) -> str:
    drawing = _unique_ids(figure.svg, figure.name)
    label = escape(figure.description)
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return (
        f"<figure>{drawing}<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _unique_ids(svg: str, name: str) -> str:
    """Return a drawing whose ids, and the uses of them, are its own in the page."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return svg.replace("url(#", f"url(#{name}-")


def _example(example: Example) -> str:
    answers = "".join(
        f'<li class="item{" right" if item.right else ""}">{_item(item)}</li>'
        for item in example.answers
    )
    shown = (
        f'<div class="item query">{_item(example.query)}</div>'
        f'<ol class="items">{answers}</ol>'
    )
    if len(example.answers) == 1:
        shown = f'<div class="pair">{shown}</div>'
    title = f"<h3>{escape(example.title)}</h3>"
    return f'<article class="example">{title}{shown}</article>'


def _item(item: Item) -> str:
    parts = [item.picture, f"<b>{escape(item.name)}</b>"]
    if item.text:
        parts.append(f"<span>{escape(item.text)}</span>")
    if item.note:
        parts.append(f'<span class="note">{escape(item.note)}</span>')
    if item.right:
        parts.append('<span class="mark">right answer</span>')
    return "".join(parts)
