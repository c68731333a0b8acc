"""Digests remembered: when a file is read again, and when not."""

import os
import time

import pytest

from specbuild.builder import digests
from specbuild.builder.digests import DigestCache
from specbuild.store import file_digest


@pytest.fixture
def reads(monkeypatch):
    read = []
    monkeypatch.setattr(digests, "file_digest", lambda path: read.append(path.name) or file_digest(path))
    return read


@pytest.fixture
def settled(monkeypatch):
    """A clock an hour ahead: every file is old."""
    ahead = time.time_ns() + 3600 * 10**9
    monkeypatch.setattr(digests.time, "time_ns", lambda: ahead)


def digest(store, path):
    cache = DigestCache(store)
    found = cache.sha256(path)
    cache.save()
    return found


def test_a_settled_file_is_read_once(tmp_path, reads, settled):
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    assert digest(tmp_path / "d.json", file) == digest(tmp_path / "d.json", file) == file_digest(file)
    assert reads == ["weights"]


def test_a_fresh_file_is_read_again(tmp_path, reads):
    """Within one tick of the clock a second write leaves the same time stamp."""
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    digest(tmp_path / "d.json", file)
    digest(tmp_path / "d.json", file)
    assert reads == ["weights", "weights"]


def test_a_changed_file_is_read_again_even_with_its_old_time(tmp_path, reads, settled):
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    before = file.stat()
    first = digest(tmp_path / "d.json", file)
    time.sleep(0.02)  # longer than a tick of the file system's clock
    file.write_bytes(b"abd")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest(tmp_path / "d.json", file) != first
    assert len(reads) == 2


def test_a_link_is_its_file(tmp_path, reads, settled):
    (tmp_path / "blob").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("blob")
    digest(tmp_path / "d.json", tmp_path / "blob")
    digest(tmp_path / "d.json", tmp_path / "link")
    assert reads == ["blob"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"/x": 3}', '{"/x": [1, 2]}'])
def test_a_damaged_memory_is_no_obstacle(damage, tmp_path, settled):
    (tmp_path / "d.json").write_text(damage)
    (tmp_path / "weights").write_bytes(b"abc")
    assert digest(tmp_path / "d.json", tmp_path / "weights") == file_digest(tmp_path / "weights")


def test_what_is_gone_is_forgotten(tmp_path, settled):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
        digest(tmp_path / "d.json", tmp_path / name)
    (tmp_path / "a").unlink()
    (tmp_path / "c").write_bytes(b"c")
    digest(tmp_path / "d.json", tmp_path / "c")
    assert str(tmp_path / "a") not in (tmp_path / "d.json").read_text()
    assert str(tmp_path / "b") in (tmp_path / "d.json").read_text()
