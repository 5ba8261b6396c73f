"""Who accepts an exception, and why: words that stand in the ledger and in statements for ever."""

import pytest
from pydantic import ValidationError

from service.datasets.schemas import DatasetRegistration
from service.ledger.schemas import RestoredBackupRequest

ERASES_THE_LINE_ABOVE = "owner: published\x1b[1A\x1b[2K"
READS_BACKWARDS = "owner: \u202enot published\u202c"


@pytest.mark.parametrize("said", [ERASES_THE_LINE_ABOVE, READS_BACKWARDS, "a: b\u2067c\u2069"])
@pytest.mark.parametrize("field", ["waiver", "accept_overlap"])
def test_they_are_nothing_that_a_terminal_obeys(field: str, said: str) -> None:
    """What stands beside them says that a search is not accounted."""
    with pytest.raises(ValidationError, match=r'expected "owner: reason"') as refused:
        DatasetRegistration(name="data", path="/data", epsilon=1.0, delta=1e-5, **{field: said})
    assert [fault["loc"] for fault in refused.value.errors()] == [(field,)]
    with pytest.raises(ValidationError, match=r'expected "who: reason"'):
        RestoredBackupRequest(reason=said)


@pytest.mark.parametrize(
    "said",
    [
        "owner: why",
        "Владелец: опубликовано",
        "a:\n\tof several lines 🙂",
        "מנהל: פורסם\u200f 👩\u200d🔬",
    ],
)
def test_any_language_and_several_lines_are_kept(said: str) -> None:
    made = DatasetRegistration(name="data", path="/data", epsilon=1.0, delta=1e-5, waiver=said)
    assert made.waiver == said
    assert RestoredBackupRequest(reason=said).reason == said
