"""The text, tags and links of a page of HTML."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Collects the text of a page, and everything that a browser would fetch or follow."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.attributes: list[str] = []
        self.feed(html)
        self.words = " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value for name, value in attrs if name in {"href", "src"} and value]

    def handle_data(self, data):
        self.text.append(data)
