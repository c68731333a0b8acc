"""The store of engines: whole or not there, found, verified, shrunk, and safe under several processes."""

import errno
import hashlib
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from specbuild.engine import MANIFEST, Manifest
from specbuild.errors import BuildError, ProfileError
from specbuild.store import Store, default_root, file_digest

KEY = hashlib.sha256(b"one").hexdigest()
OTHER = hashlib.sha256(b"two").hexdigest()


def fill(folder: Path, key: str = KEY, text: bytes = b"weights", created: str = "2030-01-01T00:00:00+00:00") -> None:
    """A folder with one file, and the manifest of it."""
    (folder / "model.bin").write_bytes(text)
    manifest = Manifest(
        key=key,
        stack="openvino",
        precision="int8",
        inputs={},
        files={"model.bin": file_digest(folder / "model.bin")},
        sizes={"model.bin": len(text)},
        architecture="LlamaForCausalLM",
        vocab_size=1,
        layers=1,
        kv_heads=1,
        head_dim=1,
        max_position=1,
        parameters=1,
        weight_bytes=len(text),
        eos_ids=(0,),
        created=created,
        seconds=0.0,
    )
    (folder / MANIFEST).write_text(manifest.to_json())


def build(store: Store, key: str = KEY, **options) -> None:
    with store.building(key) as folder:
        assert folder is not None
        fill(folder, key, **options)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "s")


def leftovers(store: Store) -> list[Path]:
    return list((store.root / "partial").iterdir())


def test_an_engine_is_found_once_it_is_whole(store):
    assert store.find(KEY) is None
    with store.building(KEY) as folder:
        fill(folder)
        assert store.find(KEY) is None
        assert store.ls() == []
    engine = store.find(KEY)
    assert engine.folder == store.root / "engines" / KEY
    assert engine.manifest.precision == "int8"
    assert leftovers(store) == []


def test_what_is_there_is_not_built_again_unless_forced(store):
    build(store)
    with store.building(KEY) as folder:
        assert folder is None
    with store.building(KEY, force=True) as folder:
        fill(folder, text=b"again")
    assert (store.find(KEY).folder / "model.bin").read_bytes() == b"again"
    assert leftovers(store) == []


def build_half(store):
    with store.building(KEY) as folder:
        (folder / "half").write_text("x")
        raise ZeroDivisionError


def test_a_failed_build_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError):
        build_half(store)
    assert store.find(KEY) is None
    assert leftovers(store) == []


def test_a_build_without_its_manifest_is_not_published(store):
    with pytest.raises(ProfileError), store.building(KEY) as folder:
        (folder / "model.bin").write_text("x")
    with pytest.raises(BuildError, match="wrote a manifest of"), store.building(KEY) as folder:
        fill(folder, OTHER)
    assert store.ls() == []
    assert leftovers(store) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_says_so(store, code):
    with pytest.raises(BuildError, match="the disk is full") as caught, store.building(KEY):
        raise OSError(code, os.strerror(code))
    assert caught.value.exit_code == 5
    assert "what is built is kept" in caught.value.faults[0].fix
    assert leftovers(store) == []


def test_a_disk_that_will_be_full_is_refused_before_the_build(store):
    store.require(1 << 10)
    with pytest.raises(BuildError, match=r"the disk is full: the build needs 1073741824.0 GiB"):
        store.require(1 << 60)


def test_a_store_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(BuildError, match=r"the build stopped: .*Not a directory"),
        Store(tmp_path / "file/store").building(KEY),
    ):
        pass


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda folder: (folder / "model.bin").write_bytes(b"weigh"), "model.bin has 5 bytes, not 7"),
        (lambda folder: (folder / "model.bin").unlink(), "model.bin is missing"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "JSON"),
        (lambda folder: (folder / MANIFEST).unlink(), "cannot read"),
        (lambda folder: fill(folder, OTHER), f"the manifest is of {OTHER}"),
    ],
)
def test_damage_is_seen_without_reading_files_and_repaired_by_the_next_build(store, damage, fault):
    build(store)
    damage(store.root / "engines" / KEY)
    assert store.find(KEY) is None
    (entry,) = store.ls()
    assert fault in entry.faults[0]
    build(store)
    assert store.find(KEY) is not None
    assert leftovers(store) == []


def test_verify_reads_every_byte(store):
    build(store)
    build(store, OTHER)
    (store.root / "engines" / KEY / "model.bin").write_bytes(b"wEights")
    assert store.find(KEY) is not None  # its size is right
    faults = {entry.key: entry.faults for entry in store.verify()}
    assert faults == {KEY: ("model.bin has changed",), OTHER: ()}


def test_ls_shows_the_newest_first(store):
    build(store, created="2029-01-01T00:00:00+00:00")
    build(store, OTHER, text=b"longer weights", created="2031-01-01T00:00:00+00:00")
    assert [(entry.key, entry.bytes) for entry in store.ls()] == [(OTHER, 14), (KEY, 7)]


def test_gc_removes_what_is_asked_for_and_what_is_no_use(store):
    build(store)
    build(store, OTHER)
    (store.root / "partial" / f"{KEY}.12345").mkdir()
    assert [entry.faults for entry in store.gc()] == [("left by a killed run",)]
    (store.root / "engines" / KEY / "model.bin").unlink()
    assert [entry.key for entry in store.gc()] == [KEY]
    build(store)
    assert [entry.key for entry in store.gc({KEY})] == [OTHER]
    assert [entry.key for entry in store.gc(set())] == [KEY]
    assert store.ls() == []
    assert leftovers(store) == []


def test_gc_of_a_store_that_is_not_there(store):
    assert store.gc() == []
    assert store.ls() == store.verify() == []


def test_gc_leaves_alone_what_is_being_built(store):
    with store.building(KEY) as folder:
        fill(folder)
        assert Store(store.root).gc(set()) == []
        assert (folder / "model.bin").exists()


def _build_slowly(root: Path, ready: Path) -> None:
    with Store(root).building(KEY) as folder:
        ready.write_text(str(os.getpid()))
        time.sleep(60)
        fill(folder)


def test_a_killed_build_is_invisible_and_its_leavings_go(store, tmp_path):
    ready = tmp_path / "ready"
    process = multiprocessing.get_context("spawn").Process(target=_build_slowly, args=(store.root, ready))
    process.start()
    while not ready.exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert store.ls() == []
    assert len(leftovers(store)) == 1
    build(store)
    assert leftovers(store) == []


def _build_or_wait(root: Path, log: Path) -> None:
    with Store(root).building(KEY) as folder, log.open("a") as file:
        file.write("built\n" if folder else "found\n")
        if folder:
            time.sleep(0.2)
            fill(folder)


def test_processes_that_want_one_engine_build_it_once(store, tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_build_or_wait, args=(store.root, tmp_path / "log")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted((tmp_path / "log").read_text().split()) == ["built", "found", "found"]


def test_where_the_store_is(monkeypatch, tmp_path):
    assert Store().root == Path(os.environ["SPECBUILD_STORE"])
    monkeypatch.delenv("SPECBUILD_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "specbuild"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_root() == Path.home() / ".cache/specbuild"
    assert Store(Path("~/x")).root == Path.home() / "x"
