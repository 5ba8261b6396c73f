"""``python -m worker.selftest [--seed N] [--quick]``: a JSON line for each finding, and one for the end.

The last line tells a test that has ended from one that broke off. Exit code 1 if a finding failed.
"""

import argparse
import json
import sys
from typing import Any

from worker.settings import quieten_ray


def main(arguments: list[str] | None = None) -> int:
    """Run the self-test and print what it finds as it finds it."""
    parser = argparse.ArgumentParser(prog="python -m worker.selftest", description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--quick", action="store_true")
    wanted = parser.parse_args(arguments)
    quieten_ray()
    # Ray and torch take seconds to load: a wrong argument is refused before.
    from worker.selftest.suite import run

    num_findings, num_failed = 0, 0
    for finding in run(seed=wanted.seed, quick=wanted.quick):
        num_findings += 1
        num_failed += not finding.is_passed
        _print(finding.to_json())
    _print({"num_findings": num_findings, "num_failed": num_failed})
    return 1 if num_failed else 0


def _print(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
