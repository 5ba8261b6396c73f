"""Seed each fault and let the whole self-test look for it, quickly; exit 1 if one is missed."""

import sys
import time

from tests.privacy_faults import FAULTS
from worker.selftest.finding import Finding
from worker.selftest.suite import run


def caught_by(findings: list[Finding], wanted: str) -> str:
    """What the finding that is there for the fault says, and how many others failed beside it."""
    failed = [finding for finding in findings if not finding.is_passed]
    named = [finding for finding in failed if finding.check == wanted]
    others = len(failed) - len(named)
    told = ", ".join(map(_told, named)) or "only by " + ", ".join(map(_told, failed[:1]))
    return told + (f", and {others} more" if named and others else "")


def _told(finding: Finding) -> str:
    if finding.value is None:
        return f"{finding.check} ({finding.error})"
    chance = "" if finding.p_value is None else f", p = {finding.p_value:.1g}"
    return f"{finding.check} = {finding.value:.4g}{chance}"


def main(words: list[str]) -> int:
    """Run the faults whose names have one of these words; without words, all."""
    chosen = [f for f in FAULTS if not words or any(word in f.name for word in words)]
    false_alarms = [finding for finding in run(quick=True) if not finding.is_passed]
    print(f"{'passed' if not false_alarms else 'FAILED':9}without a fault", flush=True)
    missed = 0
    for fault in chosen:
        start = time.monotonic()
        with fault.seeded():
            findings = list(run(quick=True))
        is_caught = not all(finding.is_passed for finding in findings)
        missed += not is_caught
        told = caught_by(findings, fault.finding) if is_caught else ""
        verdict = "caught" if is_caught else "MISSED"
        print(f"{verdict:9}{time.monotonic() - start:5.1f} s  {fault.name}: {told}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed or false_alarms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
