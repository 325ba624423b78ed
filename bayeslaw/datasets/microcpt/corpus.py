"""A corpus is a folder of text: its files as bytes, some set aside for validation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayeslaw._base.errors import RunTableError


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


def read_corpus(
    folder: str | Path,
    *,
    context: int,
    windows: int,
    validation_share: float = 0.05,
    suffixes: tuple[str, ...] = (".txt", ".md", ".rst"),
) -> Corpus:
    """Read every text file below a folder; a share of them is for validation.

    Which ones is decided by a hash of their text, so that the same folder gives the
    same split everywhere. Files with equal text count once, so that nothing stands on
    both sides.

    Raises
    ------
    RunTableError
        No text there, or too little of it for ``windows`` windows of ``context`` bytes
        that do not overlap.
    """
    texts = _texts(Path(folder), suffixes)
    if not texts:
        raise RunTableError(
            f"{folder}: no text files ({', '.join(suffixes)}) below it; "
            "give a folder of text"
        )
    # Texts are in the order of their hashes: the first ones are a random share.
    cut = max(1, round(validation_share * len(texts)))
    held_out, training = _joined(texts[:cut]), _joined(texts[cut:])
    window = context + 1  # the last byte is only forecast
    room = len(held_out) // window
    if room < windows or len(training) <= context:
        raise RunTableError(
            f"{folder}: {len(texts)} files leave room for {room} validation windows of "
            f"{context} bytes, {windows} are needed; give more text or ask for fewer "
            "windows"
        )
    # Windows that do not overlap, spread over all files held out.
    first = np.linspace(0, room - 1, windows).astype(int) * window
    validation = held_out[first[:, None] + np.arange(window)]
    return Corpus(
        train=training,
        validation=validation,
        files=len(texts) - cut,
        validation_files=cut,
        validation_bytes=len(held_out),
    )


def _texts(folder: Path, suffixes: tuple[str, ...]) -> list[bytes]:
    """Read every text once, in the order of hashes, which names have no part in."""
    by_hash = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and path.is_file():
            text = path.read_bytes()
            by_hash[hashlib.sha256(text).digest()] = text
    return [by_hash[key] for key in sorted(by_hash) if by_hash[key].strip()]


def _joined(texts: list[bytes]) -> np.ndarray:
    """Join documents by a zero byte."""
    return np.frombuffer(b"\0".join(texts), np.uint8)
