"""What the rules of ``specbuild check`` look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specbuild.builder.machine import Machine
from specbuild.builder.toolchain import Toolchain
from specbuild.pair import ModelFacts, Pair, Role
from specbuild.profile import ModelSpec, Profile

SHOWN = 5
"""Differences spelled out in one finding."""


@dataclass(frozen=True)
class Situation:
    """A profile, its two models, and the machine and tools that are to build and serve them."""

    profile: Profile
    pair: Pair
    machine: Machine
    tools: Toolchain

    def models(self) -> Iterable[tuple[Role, ModelSpec, ModelFacts]]:
        """Both models with what the profile says of them."""
        yield "target", self.profile.target, self.pair.target
        yield "draft", self.profile.draft, self.pair.draft
