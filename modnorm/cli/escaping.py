"""Texts of other people, without characters that could send commands to the terminal."""

_CODES = {*range(0x20), *range(0x7F, 0xA0)} - set(b"\n\t")
_CONTROLS = {code: repr(chr(code))[1:-1] for code in _CODES}


def visible(text: str) -> str:
    """Return text with its control characters spelt out."""
    return text.translate(_CONTROLS)


def on_one_line(name: str) -> str:
    """Return a name on one line: line breaks and marks of text direction are spelt out, too."""
    return "".join(letter if letter.isprintable() else ascii(letter).strip("'") for letter in name)
