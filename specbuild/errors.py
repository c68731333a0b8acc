"""Every error a user can meet, with its exit code.

SpecbuildError       1   itself: an internal error
├── ProfileError       2   the profile or another input file (trace, flags) is wrong
├── PairError          3   target and draft do not go together
├── ToolchainError     4   a tool, library or model download is missing
├── BuildError         5   a build step failed (the disk included)
├── BudgetError        6   no policy meets a budget (the plan still says off)
├── RepositoryError    7   a Triton model repository is invalid
├── VerificationError  8   served or compiled output differs from the target alone
└── ServerError        9   a server could not be started or reached
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: what happened, where (``file:line`` for YAML), what to do."""

    what: str
    where: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n    → {self.fix}" if self.fix else ""
        return f"{place}{self.what}{remedy}"


class SpecbuildError(Exception):
    """One or more faults that stop a command; ``exit_code`` is the process's. Itself: a fault of this program."""

    exit_code = 1
    title = "internal error"

    def __init__(self, what: str | Iterable[Fault], *, where: str | None = None, fix: str | None = None) -> None:
        self.faults = (Fault(what, where, fix),) if isinstance(what, str) else tuple(what)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def as_json(self) -> dict[str, object]:
        """The error as ``--json`` prints it."""
        return {
            "error": type(self).__name__,
            "exit_code": self.exit_code,
            "faults": [asdict(fault) for fault in self.faults],
        }


class ProfileError(SpecbuildError):
    """The profile, a trace or a flag is wrong."""

    exit_code = 2
    title = "bad input"


class PairError(SpecbuildError):
    """Target and draft do not go together."""

    exit_code = 3
    title = "incompatible pair"


class ToolchainError(SpecbuildError):
    """A tool, a library or a model that the command needs is not on this machine."""

    exit_code = 4
    title = "toolchain"


class BuildError(SpecbuildError):
    """A build step failed; nothing half-written is left visible."""

    exit_code = 5
    title = "build failed"


class BudgetError(SpecbuildError):
    """No policy meets a budget. The plan is written all the same and says off."""

    exit_code = 6
    title = "no policy meets a budget"


class RepositoryError(SpecbuildError):
    """A Triton model repository is invalid."""

    exit_code = 7
    title = "invalid repository"


class VerificationError(SpecbuildError):
    """Output differs from what the target alone produces."""

    exit_code = 8
    title = "verification failed"


class ServerError(SpecbuildError):
    """A server could not be started, or did not answer."""

    exit_code = 9
    title = "server"
