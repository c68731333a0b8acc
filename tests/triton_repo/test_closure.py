from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specbuild.engine import Engines
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.triton_repo import closure as module
from specbuild.triton_repo.closure import closure
from specbuild.triton_repo.layout import MODEL
from specbuild.triton_repo.write import render

ALLOWED = {"numpy", "openvino", "openvino_genai", "triton_python_backend_utils"}
IMPORT_ALL = """\
import sys, types
for name in ("click", "filelock", "pydantic", "rich", "typing_extensions", "yaml"):
    sys.modules[name] = None  # importing it fails
fake = types.ModuleType("triton_python_backend_utils")
fake.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
sys.modules[fake.__name__] = fake
import importlib.util
spec = importlib.util.spec_from_file_location("served", sys.argv[1])
served = importlib.util.module_from_spec(spec)
sys.modules["served"] = served
spec.loader.exec_module(served)
for name in sys.argv[2:]:
    importlib.import_module(name)
import specbuild
print(specbuild.__file__)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of three modules in the place of specbuild."""
    root = tmp_path / "specbuild"
    (root / "part").mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", root)
    (root / "__init__.py").write_text("")
    (root / "part" / "__init__.py").write_text("NAME = 1\n")
    (root / "part" / "leaf.py").write_text("import os.path\nimport numpy as np\n")
    (root / "alone.py").write_text("")
    return root


def test_the_served_model_needs_only_what_a_triton_image_can_have() -> None:
    needed = closure(MODEL)
    assert needed.libraries <= ALLOWED
    assert "specbuild.runtime.speculate" in needed.modules
    assert "specbuild.runtime.fused" in needed.modules
    assert not {"specbuild.profile", "specbuild.plan", "specbuild.record", "specbuild.cli"} & set(needed.modules)
    assert {"specbuild", "specbuild.runtime", "specbuild.triton_repo.models"} <= set(needed.packages)


def test_the_copied_package_imports_alone_and_goes_before_an_installed_one(
    profile: Profile, engines: Engines, plan: Plan
) -> None:
    version = render(profile, engines, plan) / "tiny" / "1"
    command = [sys.executable, "-c", IMPORT_ALL, str(version / "model.py"), *closure(MODEL).modules]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()) == version / "specbuild" / "__init__.py"


def test_late_imports_count_and_those_for_type_checkers_do_not(package: Path) -> None:
    (package / "entry.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import torch\nelse:\n    import json\n"
        "def late():\n    from specbuild.part import leaf\n"
    )
    needed = closure("specbuild.entry")
    assert list(needed.modules) == ["specbuild.part.leaf"]
    assert needed.libraries == {"numpy"}
    assert needed.packages == ("specbuild", "specbuild.part")


def test_a_name_from_a_package_is_refused(package: Path) -> None:
    (package / "entry.py").write_text("from specbuild.part import NAME\n")
    with pytest.raises(ImportError, match=r"specbuild\.part\.NAME is not a module"):
        closure("specbuild.entry")


def test_modules_that_import_each_other_end(package: Path) -> None:
    (package / "entry.py").write_text("import specbuild.other\n")
    (package / "other.py").write_text("import specbuild.entry\nfrom specbuild.alone import x\n")
    assert list(closure("specbuild.entry").modules) == ["specbuild.alone", "specbuild.other"]
