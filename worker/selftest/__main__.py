"""``python -m worker.selftest [--seed N] [--quick]``: a JSON line for each finding; exit 1 if one failed."""

import argparse
import json
import sys

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

    is_passed = True
    for finding in run(seed=wanted.seed, quick=wanted.quick):
        is_passed &= finding.is_passed
        sys.stdout.write(json.dumps(finding.to_json()) + "\n")
        sys.stdout.flush()
    return 0 if is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
