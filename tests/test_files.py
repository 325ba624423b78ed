"""Files that are written: beside nobody's link, with their mode, and under names that do not meet."""

import errno
import inspect
import os
import stat
import threading
from pathlib import Path

import pytest

import bayeslaw
from bayeslaw import LawError, RunTableWarning
from bayeslaw._base import files
from bayeslaw._base.errors import warn
from bayeslaw._base.files import atomic_write, file_names, try_writing, write_bytes
from bayeslaw.cli.output import check_writable


def test_nothing_is_written_through_a_link_put_at_the_temporary_name(tmp_path):
    """The name of old, which anybody could foretell; and a link at the name itself."""
    victim, path = tmp_path / "victim", tmp_path / "out"
    victim.write_text("mine")
    for ending in ("part", "probe"):
        (tmp_path / f".out.{os.getpid()}.{ending}").symlink_to(victim)
    try_writing(path)
    write_bytes(path, b"new")
    path.unlink()
    path.symlink_to(victim)
    write_bytes(path, b"newer")
    assert victim.read_text() == "mine"
    assert path.read_bytes() == b"newer"
    assert not path.is_symlink()


def test_a_temporary_file_that_is_there_already_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "known")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".out.known.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_bytes(tmp_path / "out", b"new")
    assert victim.read_text() == "mine"


def test_two_threads_of_one_process_write_apart(tmp_path):
    """Both have their file open at once; the last to end has its say, whole."""
    path, both = tmp_path / "out", threading.Barrier(2, timeout=10)

    def write(letter: str) -> None:
        with atomic_write(path) as part:
            both.wait()
            part.write_text(letter * 9)
            both.wait()

    threads = [threading.Thread(target=write, args=[letter]) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in ("a" * 9, "b" * 9)
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(os.name != "posix", reason="of POSIX modes")
def test_a_file_keeps_its_mode_and_a_new_one_has_the_user_s(tmp_path):
    path, before = tmp_path / "out", os.umask(0o027)
    try:
        write_bytes(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write_bytes(path, b"2")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    path = tmp_path / ("é" * 126 + ".nc")
    try_writing(path)
    write_bytes(path, b"1")
    assert path.read_bytes() == b"1"


@pytest.mark.skipif(os.name != "posix", reason="of POSIX devices")
def test_a_device_or_a_pipe_is_no_output(tmp_path):
    """As root, a file would take its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(LawError, match="device or a pipe"):
            check_writable(path)


NAMES = [
    *("target", "de/en", "de en", "de-en", "DE-en", "Straße", "STRASSE", "strasse"),
    *("..", ".", "", "/", "../../etc/passwd", "-rf", ".hidden", "a\nb", "a\x1b[2Jb"),
    *("x" * 300, "x" * 301, "日本" * 200, "é", "e\u0301", "\u202egpj", "a" * 49 + "é"),
]


def test_files_of_names_are_distinct_safe_and_one_component(tmp_path):
    made = file_names(NAMES)
    assert list(made) == NAMES
    assert made["target"] == "target"
    assert len({each.casefold() for each in made.values()}) == len(NAMES)
    for name in made.values():
        assert name.isprintable()
        assert not name.startswith((".", "-"))
        path = tmp_path / f"{name}.nc"
        assert path.resolve().parent == tmp_path.resolve()
        path.write_text("")
    assert len(list(tmp_path.iterdir())) == len(NAMES)


def test_a_name_alone_is_kept_as_it_was():
    assert file_names(["source", "de wiki"]) == {
        "source": "source",
        "de wiki": "de-wiki",
    }


def test_a_warning_points_at_a_file_beside_the_package():
    """Whose folder's name only begins like the package's."""
    beside = f"{Path(bayeslaw.__file__).parent}_tools/script.py"
    script = compile("def reading():\n    warn('odd')\nreading()", beside, "exec")
    with pytest.warns(RunTableWarning) as seen:
        exec(script, {"warn": inspect.unwrap(warn)})  # without shape checks
    assert seen[0].filename == beside


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EIO, "Input/output error"),
    ],
    ids=str,
)
def test_a_write_that_fails_names_the_file(tmp_path, error):
    """A full disk is told by `write`, which knows no name."""
    with pytest.raises(OSError, match=r"out\.csv"), atomic_write(tmp_path / "out.csv"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_missing_keeps_its_own_name(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match="other"),
        atomic_write(tmp_path / "out"),
    ):
        (tmp_path / "other").read_bytes()
