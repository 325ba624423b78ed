"""Text as it goes to a terminal: nothing in it moves the cursor or turns the writing."""

from __future__ import annotations

import sys
import unicodedata


def printable(text: object) -> str:
    r"""Write one line, what a terminal would act on written as Python does: ``\x1b``,
    ``\n``.
    """
    characters = str(text)
    if characters.isascii() and characters.isprintable():
        return characters
    return "".join(map(_shown, characters))


def _shown(character: str) -> str:
    # controls, formats (bidi among them), halves of pairs, ends of lines and paragraphs
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return ascii(character)[1:-1]


def say(*lines: object, to_stderr: bool = False) -> None:
    """Print, each a line."""
    stream = sys.stderr if to_stderr else sys.stdout
    for line in lines:
        print(printable(line), file=stream, flush=to_stderr)


def say_block(text: str) -> None:
    """Print text of several lines, whose own names are cells or lines made printable."""
    say(*text.split("\n"))
