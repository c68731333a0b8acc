"""Print what the demo came to: each pair's plan beside speculation off, the served answer, the report's place."""

from __future__ import annotations

import sys
from pathlib import Path

from specbuild.plan import Choice, Plan


def main(demo: Path) -> None:
    """Read what the commands left in the demo's folder."""
    for name in ("made", "smollm2"):
        plan = Plan.read(demo / name / "out" / name / "plan.json")
        print(f"\n{name}: speculation off gives {plan.off.output_tokens_per_s:.1f} tokens/s")
        budgets: dict[str, list[str]] = {}
        for budget, choice in plan.choices.items():
            budgets.setdefault(_beside_off(choice), []).append(budget)
        for outcome, names in budgets.items():
            print(f"  {', '.join(names)}: {outcome}")
    answer = (demo / "answer.txt").read_text(encoding="utf-8").strip("\n").splitlines()
    print("\nserved", *(f"  {line}" for line in answer[:3]), sep="\n")
    print(f"\nreport: {demo / 'report.html'}")


def _beside_off(choice: Choice) -> str:
    if choice.policy.is_off:
        return "\n    ".join(["off", *choice.reasons])
    gain = choice.speedup_over_off
    rate = choice.measured.output_tokens_per_s
    return f"{choice.policy}, {rate:.1f} tokens/s, {gain.value:.2f}x (95% interval {gain.low:.2f} to {gain.high:.2f})"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
