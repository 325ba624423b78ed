"""Print text on a terminal, safe from characters that move its cursor."""

from __future__ import annotations

import shlex
import sys
import unicodedata


def printable(text: object) -> str:
    r"""Convert to one line, control characters escaped as in Python: ``\x1b``."""
    characters = str(text)
    if characters.isascii() and characters.isprintable():
        return characters
    return "".join(map(_shown, characters))


def _shown(character: str) -> str:
    # controls, formats (also of direction), surrogates, ends of lines and paragraphs
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return ascii(character)[1:-1]


def quote(text: str) -> str:
    """Quote text for a shell: in double quotes if these protect all of it."""
    is_plain = not set(text) & set('"$`\\!')
    return f'"{text}"' if is_plain else shlex.quote(text)


def say(*lines: object, to_stderr: bool = False) -> None:
    """Print each argument as a line."""
    stream = sys.stderr if to_stderr else sys.stdout
    for line in lines:
        print(printable(line), file=stream, flush=to_stderr)


def say_block(text: str) -> None:
    """Print text of several lines; each line is made printable."""
    say(*text.split("\n"))
