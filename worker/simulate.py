"""``python -m worker.simulate``: the driver of one attempt of one search."""

import sys

from tan_core.wire import SearchAssignment
from worker.driver import Driver, Outcome, drive
from worker.settings import quieten_ray


def simulate(assignment: SearchAssignment, driver: Driver) -> Outcome:
    """Run the trials that are left."""
    quieten_ray()
    # Ray and torch take seconds to load: by now the lease is being kept.
    from worker.search import search

    return search(assignment, driver)


if __name__ == "__main__":
    sys.exit(drive(SearchAssignment, simulate))
