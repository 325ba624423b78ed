"""A corpus is a folder of text: its files as bytes, some of them set aside for validation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayeslaw._errors import RunTableError

SEPARATOR = 0  # the byte between documents
VALIDATION = 0.05  # share of the files
SUFFIXES = (".txt", ".md", ".rst")


@dataclass(frozen=True)
class Corpus:
    """Bytes of one domain, split by file.

    Attributes
    ----------
    train
        The training files one after another, shape (byte,), uint8.
    validation
        Windows from the other files, shape (window, context + 1), uint8.
    files, validation_files
        How many files each part holds.
    validation_bytes
        Size of the files from which the windows were taken.
    """

    train: np.ndarray
    validation: np.ndarray
    files: int
    validation_files: int
    validation_bytes: int


def read_corpus(folder: str | Path, *, context: int, windows: int) -> Corpus:
    """Read every text file below a folder; a twentieth of the files, chosen by a hash of their text, is for validation.

    Files with equal text count once, so nothing stands on both sides. The same folder gives the same split everywhere.

    Raises
    ------
    RunTableError
        No text there, or too little of it for ``windows`` windows of ``context`` bytes that do not overlap.
    """
    paths = sorted(p for p in Path(folder).rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    texts = {hashlib.sha256(text).digest(): text for text in (p.read_bytes() for p in paths) if text.strip()}
    if not texts:
        raise RunTableError(f"{folder}: no text files ({', '.join(SUFFIXES)}) below it; give a folder of text")
    ranked = sorted(texts)  # by hash: an order that has nothing to do with names
    cut = max(1, round(VALIDATION * len(ranked)))
    held_out, rest = (_joined([texts[key] for key in keys]) for keys in (ranked[:cut], ranked[cut:]))
    room = len(held_out) // (context + 1)
    if room < windows or len(rest) <= context:
        raise RunTableError(
            f"{folder}: {len(texts)} files leave room for {room} validation windows of {context} bytes, {windows} are "
            "needed; give more text or ask for fewer windows"
        )
    first = np.linspace(0, room - 1, windows).astype(int) * (context + 1)
    validation = held_out[first[:, None] + np.arange(context + 1)]
    return Corpus(rest, validation, len(ranked) - cut, cut, len(held_out))


def _joined(texts: list[bytes]) -> np.ndarray:
    return np.frombuffer(bytes([SEPARATOR]).join(texts), np.uint8)
