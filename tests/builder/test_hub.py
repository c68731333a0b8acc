"""Models by hub id: from the local cache, fetched only with consent, and only the files that a build reads."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from small_models import write_model, write_profile

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def lay_out_cache(hub: Path, name: str, source: Path) -> Path:
    """A model folder as the hub's cache keeps it: a snapshot of links into blobs."""
    root = hub / f"models--{name.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(COMMIT)
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for file in source.iterdir():
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        (root / "blobs" / digest).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{digest}")
    return snapshot


def check(profile: Path, hub: Path, *options: str, **environment: str) -> subprocess.CompletedProcess:
    """``specbuild check --json`` in a process of its own: the hub's library reads its settings when imported."""
    command = [sys.executable, "-m", "specbuild", "check", str(profile), "--json", *options]
    env = {**os.environ, "HF_HUB_CACHE": str(hub), **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def profile(tmp_path) -> Path:
    """A profile whose draft is the hub id ``maker/draft``."""
    write_model(tmp_path / "target", seed=1, num_hidden_layers=6)
    write_model(tmp_path / "source", seed=2, num_hidden_layers=1)
    (tmp_path / "source/README.md").write_text("a page")
    (tmp_path / "source/modeling.py").write_text("raise SystemExit('code of a model is never run')")
    (tmp_path / "source/pytorch_model.bin").write_text("a pickle")
    return write_profile(tmp_path, draft={"model": "maker/draft", "precision": "fp16"})


def test_a_cached_model_is_used_where_it_lies(profile, tmp_path):
    snapshot = lay_out_cache(tmp_path / "hub", "maker/draft", tmp_path / "source")
    done = check(profile, tmp_path / "hub")
    assert done.returncode == 0, done.stderr
    draft = json.loads(done.stdout)["draft"]
    assert draft["folder"] == str(snapshot)
    assert "README.md" not in draft["files"]


def test_a_model_that_is_not_here_is_not_fetched_without_consent(profile, tmp_path):
    done = check(profile, tmp_path / "hub", HF_HUB_OFFLINE="0", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 4
    (fault,) = json.loads(done.stdout)["faults"]
    assert fault["where"] == f"{profile}:3"
    assert "neither a folder here nor in the local Hugging Face cache" in fault["what"]
    assert "--download" in fault["fix"]


def test_a_model_cached_in_part_is_said_to_be(profile, tmp_path):
    (lay_out_cache(tmp_path / "hub", "maker/draft", tmp_path / "source") / "model.safetensors").unlink()
    done = check(profile, tmp_path / "hub")
    assert done.returncode == 4
    assert "only in part" in json.loads(done.stdout)["faults"][0]["what"]


class Hub(BaseHTTPRequestHandler):
    """A model hub of the one model in ``source``; remembers in ``asked`` which files it gave."""

    source: Path
    asked: list[str]

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        path = self.path.split("?")[0]
        file = self.source / path.rsplit("/", 1)[-1]
        if path.startswith("/api/models/maker/draft"):
            files = [{"rfilename": file.name} for file in sorted(self.source.iterdir())]
            body = json.dumps({"id": "maker/draft", "sha": COMMIT, "siblings": files}).encode()
        elif path.startswith("/maker/draft/resolve/") and file.is_file():
            body = file.read_bytes()
            self.asked.append(file.name)
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server(tmp_path):
    """A hub on loopback, and the names of the files it was asked for."""
    asked: list[str] = []
    handler = type("OneHub", (Hub,), {"source": tmp_path / "source", "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}", asked
        running.shutdown()


def test_with_consent_only_the_files_of_a_build_are_fetched(profile, tmp_path, server):
    url, asked = server
    hub = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1"}
    done = check(profile, tmp_path / "hub", "--download", **hub)
    assert done.returncode == 0, done.stderr
    assert "downloading maker/draft" in done.stderr
    build_files = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert set(asked) == build_files | {"model.safetensors"}
    asked.clear()
    assert check(profile, tmp_path / "hub", "--download", **hub).returncode == 0
    assert asked == []  # cached now: the hub is not even asked


def test_a_download_that_fails_says_why(profile, tmp_path, server):
    write_profile(tmp_path, draft={"model": "maker/unknown", "precision": "fp16"})
    done = check(profile, tmp_path / "hub", "--download", HF_HUB_OFFLINE="0", HF_ENDPOINT=server[0])
    assert done.returncode == 4
    assert json.loads(done.stdout)["faults"][0]["what"].startswith("cannot download maker/unknown: ")


@pytest.mark.parametrize("name", ["missing", "./missing", "target/missing", "/nowhere/at/all", "a/b/c"])
def test_what_cannot_be_a_hub_id_is_a_missing_folder(name, profile, tmp_path):
    write_profile(tmp_path, draft={"model": name, "precision": "fp16"})
    done = check(profile, tmp_path / "hub")
    assert done.returncode == 2
    assert json.loads(done.stdout)["faults"][0]["what"].startswith("no model folder ")
