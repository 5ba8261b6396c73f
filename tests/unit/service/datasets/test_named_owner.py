"""Who accepts an exception, and why: words that stand in the ledger and in statements for ever."""

import pytest
from pydantic import ValidationError

from service.datasets.schemas import DatasetRegistration
from service.ledger.schemas import RestoredBackupRequest

ERASES_THE_LINE_ABOVE = "owner: published\x1b[1A\x1b[2K"


@pytest.mark.parametrize("field", ["waiver", "accept_overlap"])
def test_they_are_nothing_that_a_terminal_obeys(field: str) -> None:
    """What stands beside them says that a search is not accounted."""
    with pytest.raises(ValidationError, match=r'expected "owner: reason"') as refused:
        DatasetRegistration(
            name="data", path="/data", epsilon=1.0, delta=1e-5, **{field: ERASES_THE_LINE_ABOVE}
        )
    assert [fault["loc"] for fault in refused.value.errors()] == [(field,)]
    with pytest.raises(ValidationError, match=r'expected "who: reason"'):
        RestoredBackupRequest(reason=ERASES_THE_LINE_ABOVE)


@pytest.mark.parametrize(
    "said", ["owner: why", "Владелец: опубликовано", "a:\n\tof several lines 🙂"]
)
def test_any_language_and_several_lines_are_kept(said: str) -> None:
    made = DatasetRegistration(name="data", path="/data", epsilon=1.0, delta=1e-5, waiver=said)
    assert made.waiver == said
    assert RestoredBackupRequest(reason=said).reason == said
