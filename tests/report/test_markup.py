"""What is written on a page stays text."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gdp.report.markup import MAX_LABEL, join, shorten, tag, text


class Events(HTMLParser):
    """What a parser sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.data += data


@given(st.text(), st.text())
def test_a_parser_reads_back_the_text_and_no_other_element(content: str, attribute: str) -> None:
    events = Events()
    events.feed(tag("p", {"title": attribute}, text(content)))
    events.close()

    def visible(value: str) -> str:
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)

    assert events.tags == [("p", {"title": visible(attribute)})]
    assert events.data == visible(content)


def test_numbers_and_void_elements() -> None:
    assert tag("line", {"x1": 0.12345, "y1": 2}) == '<line x1="0.123" y1="2"/>'
    assert join([text("a<b"), tag("b", {})]) == "a&lt;b<b></b>"


def test_long_names_lose_their_middle() -> None:
    assert shorten("a" * MAX_LABEL) == "a" * MAX_LABEL
    assert len(shorten("x" * 40 + "y" * 1000)) < MAX_LABEL
    assert shorten("start" + "-" * 1000 + "end").startswith("start")
    assert shorten("start" + "-" * 1000 + "end").endswith("end")
