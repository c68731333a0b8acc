from __future__ import annotations

from pathlib import Path

import pytest
from paper import plan_of, write_engines, write_profile

from specbuild.engine import Engines
from specbuild.plan import Plan, PolicySpec
from specbuild.profile import Profile


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile.load(write_profile(tmp_path))


@pytest.fixture
def engines(tmp_path: Path) -> Engines:
    return write_engines(tmp_path / "engines")


@pytest.fixture
def plan(engines: Engines) -> Plan:
    """Budget ``chat`` drafts 4, budget ``batch`` is off."""
    return plan_of(engines, {"chat": PolicySpec.fixed(4), "batch": PolicySpec.fixed(0)})
