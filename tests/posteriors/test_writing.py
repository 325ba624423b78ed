"""A file is written whole or not at all: full disks, kills, two writers, places that cannot be written."""

import json
import subprocess
import sys

import pytest

from bayeslaw import LawError
from bayeslaw.cli.output import check_writable
from known.saved import save_average, save_fit

KILLS = 50  # of writers, two at a time

# A limit on the size of files stands for a disk that is full.
FULL = """
import resource, signal, sys
import bayeslaw
posterior = bayeslaw.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    posterior.save(sys.argv[1])
except OSError as error:
    print(error.strerror)
"""

# Two writers at a time, forked once all is imported, so that a kill can meet any moment.
KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from bayeslaw._base.files import write_bytes

path, kills = Path(sys.argv[1]), int(sys.argv[2])
size = 20_000_000
rng, cut, contents = random.Random(0), 0, set()

def writer(letter):
    process = os.fork()
    while not process:
        write_bytes(path, letter * size)
    return process

for _ in range(kills):
    writers = [writer(b"a"), writer(b"b")]
    time.sleep(rng.uniform(0.01, 0.1))
    for process in writers:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    parts = list(path.parent.glob(".*.part"))
    cut += len(parts)
    for part in parts:
        part.unlink()
    content = path.read_bytes()
    contents.add((len(content), len(set(content))))
print(json.dumps({"cut": cut, "contents": sorted(contents)}))
"""


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("save", [save_fit, save_average])
def test_a_full_disk_is_an_error_and_leaves_the_file_as_it_was(save, tmp_path):
    path = save(tmp_path / "posterior.nc")
    before = path.read_bytes()
    assert len(before) > 2000
    assert "large" in run(FULL, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["posterior.nc"]


def test_kills_and_two_writers_leave_a_whole_file(tmp_path):
    """Two writers follow their own last write without a pause, so that kills cut some: the file is the one's or the other's, never a mixture or a part."""
    path = tmp_path / "out"
    path.write_bytes(b"a" * 20_000_000)
    told = json.loads(run(KILLED, path, KILLS // 2))
    assert told["cut"] > 0, "no kill met a write"
    assert told["contents"] == [[20_000_000, 1]]


def test_what_cannot_be_written_is_told_before_the_work(tmp_path):
    check_writable(tmp_path / "new" / "fit.nc")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LawError, match="is a folder"):
        check_writable(tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LawError, match="cannot be written"):
        check_writable(file / "fit.nc")
