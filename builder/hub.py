"""Where a model of the profile lies: a folder, or a hub id in the local Hugging Face cache."""

from __future__ import annotations

import re
from pathlib import Path

from specbuild.builder.modelfolder import CONFIG, GENERATION_CONFIG, TOKENIZER_FILES
from specbuild.builder.weights import INDEX
from specbuild.console import say
from specbuild.errors import ProfileError, ToolchainError
from specbuild.pair import Role
from specbuild.profile import ModelSpec, Profile

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
FILES = (CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES, INDEX, "*.safetensors")
"""All that is ever fetched of a model: no code, no pickled weights."""


def locate(profile: Profile, role: Role, *, allow_download: bool = False) -> Path:
    """The folder of the profile's target or draft.

    A name that is no folder, but reads ``owner/name``, is looked up in the local cache and fetched only with
    ``allow_download``. Raises ProfileError for a missing folder, ToolchainError for a model that is not cached or
    cannot be fetched.
    """
    spec: ModelSpec = getattr(profile, role)
    folder = profile.resolve(spec.model)
    if folder.is_dir():
        return folder
    where = profile.where(role, "model")
    if not _HUB_ID.fullmatch(spec.model) or folder.parent.is_dir():
        raise ProfileError(f"no model folder {folder}", where=where, fix="name a Hugging Face model folder or a hub id")
    cached = _cached(spec)
    if cached and _complete(cached):
        return cached
    if not allow_download:
        state = "only in part in" if cached else "neither a folder here nor in"
        raise ToolchainError(
            f"{spec.model} is {state} the local Hugging Face cache, and nothing is downloaded without your consent",
            where=where,
            fix="add --download to fetch its config, tokenizer and safetensors files, or name a model folder",
        )
    return _fetch(spec, where)


def _cached(spec: ModelSpec) -> Path | None:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        return None
    try:
        return Path(snapshot_download(spec.model, revision=spec.revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _complete(folder: Path) -> bool:
    has = [any(folder.glob(pattern)) for pattern in (CONFIG, "tokenizer.json", "*.safetensors")]
    return all(has)


def _fetch(spec: ModelSpec, where: str) -> Path:
    try:
        from httpx import HTTPError
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ToolchainError("huggingface_hub is not installed", fix="pip install 'specbuild[openvino]'") from error
    say(f"  downloading {spec.model} {spec.revision or ''}from the model hub: {', '.join(FILES)}")
    try:
        return Path(snapshot_download(spec.model, revision=spec.revision, allow_patterns=list(FILES)))
    except (HTTPError, OSError, ValueError) as error:
        raise ToolchainError(
            f"cannot download {spec.model}: {str(error).strip().splitlines()[0]}",
            where=where,
            fix="check the name, the network and, for gated models, the token (hf auth login)",
        ) from error
