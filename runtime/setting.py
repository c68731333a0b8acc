"""What a replay is measured on, and the measurement that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbuild.clock import utc_stamp
from specbuild.engine import Engines
from specbuild.measurement import Measurement, Timeline
from specbuild.plan import PolicySpec
from specbuild.profile import Profile
from specbuild.record import digest_of
from specbuild.runtime import metrics
from specbuild.runtime.arrivals import Arrivals
from specbuild.runtime.environment import identity
from specbuild.trace import Trace


@dataclass(frozen=True)
class Setting:
    """A pair on its traffic, on a machine."""

    profile: Profile
    engines: Engines
    trace: Trace
    arrivals: Arrivals
    environment: dict[str, str]

    @property
    def key(self) -> str:
        """sha256 over all that a plan depends on: pair, trace, the profile's part in it, the machine's identity."""
        part = self.profile.model_dump(mode="json", include={"name", "numerics", "limits", "budgets", "traffic"})
        del part["traffic"]["file"]  # its content counts, not its place
        return digest_of(
            {
                "pair": self.engines.digest,
                "trace": self.trace.digest,
                "profile": part,
                "environment": identity(self.environment),
            }
        )

    def measurement(
        self, parts: Sequence[Timeline], policy: PolicySpec, graph: str, left_out: Mapping[str, int]
    ) -> Measurement:
        """A replay with everything that it was measured on."""
        return Measurement(
            profile=self.profile.name,
            pair_digest=self.engines.digest,
            trace_digest=self.trace.digest,
            numerics=self.profile.numerics,
            graph=graph,
            arrivals=str(self.arrivals),
            measured=metrics.measure(parts, policy, self.profile.budgets),
            outcomes=metrics.outcomes(parts),
            left_out=dict(left_out),
            lag_ms=metrics.lag_ms(parts),
            unsent=sum(part.unsent for part in parts),
            environment=self.environment,
            interrupted=any(part.interrupted for part in parts),
            created=utc_stamp(),
        )
