"""Any order of reserving, charging, running, crashing and coming back: charged is never below run."""

from tests.fixtures.postgres import DatabaseUrls
from tests.property.ledger.machine import run_machine


def test_charged_never_falls_below_executed(database_urls: DatabaseUrls) -> None:
    run_machine(database_urls, max_examples=12)
