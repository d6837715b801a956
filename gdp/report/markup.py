"""Text that is safe to put on a page: the type checker sees to it that only `Markup` gets there."""

import html
from collections.abc import Iterable, Mapping
from typing import NewType

Markup = NewType("Markup", str)
"""HTML or SVG source. Only `text`, `tag` and `join` make it, and all of them escape what is not markup already."""

MAX_LABEL = 80
"""Longer names are cut in the middle."""

_VOID = frozenset({"rect", "line", "circle", "path", "meta", "br"})


def text(value: str) -> Markup:
    """The characters of `value`, none of which can be taken for markup, end a line or turn the direction of reading."""
    return Markup(html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)))


def shorten(name: str) -> str:
    """`name` with its middle left out where it is longer than `MAX_LABEL`."""
    if len(name) <= MAX_LABEL:
        return name
    half = MAX_LABEL // 2 - 1
    return f"{name[:half]}…{name[-half:]}"


def tag(name: str, attributes: Mapping[str, str | float | int], *children: Markup) -> Markup:
    """One element; the attributes are escaped, numbers are rounded to a thousandth."""
    written = "".join(f' {key}="{text(value) if isinstance(value, str) else number(value)}"' for key, value in attributes.items())
    if name in _VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{''.join(children)}</{name}>")


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def number(value: float | int) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def percent(fraction: float | int) -> str:
    """A length relative to the width of the drawing, so that drawings fit any screen while their text keeps its size."""
    return f"{number(100 * fraction)}%"


def disclosure(summary: str, *children: Markup) -> Markup:
    """A part of the page that opens on demand."""
    return tag("details", {}, tag("summary", {}, text(summary)), *children)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Markup:
    """A plain table; every column but the first is aligned as numbers."""
    body = [
        tag("tr", {}, tag("th", {"scope": "row"}, text(shorten(row[0]))), *(tag("td", {}, text(cell)) for cell in row[1:])) for row in rows
    ]
    header = tag("tr", {}, *(tag("th", {"scope": "col"}, text(cell)) for cell in head))
    return tag("div", {"class": "scroll"}, tag("table", {"class": "plain"}, tag("thead", {}, header), tag("tbody", {}, *body)))
