"""Read a folder of text as bytes, and set some of its files aside for validation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayeslaw._base.errors import RunTableError


@dataclass(frozen=True)
class Corpus:
    """Bytes of one domain; each file is either for training or for validation.

    Attributes
    ----------
    train
        The training files one after another, shape (byte,), uint8.
    validation
        Windows from the other files, shape (window, context + 1), uint8.
    files, validation_files
        How many files each part holds.
    validation_bytes
        Size of the validation files.
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
    """Read every text file below a folder, and set a share of the files aside for
    validation.

    A hash of its text decides whether a file is for validation, so that the same folder
    gives the same split everywhere. Files with equal text count once, so that no text
    is in both parts.

    Raises
    ------
    RunTableError
        The folder has no text, or too little for ``windows`` windows of ``context``
        bytes that do not overlap.
    """
    texts = _texts(Path(folder), suffixes)
    if not texts:
        raise RunTableError(
            f"{folder}: no text files ({', '.join(suffixes)}) below it; "
            "give a folder of text"
        )
    # The texts are sorted by their hashes, so the first ones are a random sample.
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
    # Windows do not overlap and are spread over all files that are held out.
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
    """Read every text once, sorted by the hash of the text; names play no part."""
    by_hash = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and path.is_file():
            text = path.read_bytes()
            by_hash[hashlib.sha256(text).digest()] = text
    return [by_hash[key] for key in sorted(by_hash) if by_hash[key].strip()]


def _joined(texts: list[bytes]) -> np.ndarray:
    """Join texts, with a zero byte between them, as an array of bytes."""
    return np.frombuffer(b"\0".join(texts), np.uint8)
