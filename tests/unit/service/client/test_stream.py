"""Server-Sent Events, as the line may bring them."""

import pytest

from service.client import ClientError
from service.client.stream import events

EVENT = '{"seq": 7, "kind": "step", "a": 1}'


def test_numbers_kinds_and_data_are_read_and_comments_passed_over() -> None:
    half = EVENT.index(",") + 1
    lines = [": hello", "", "id: 7", "event: step", f"data: {EVENT[:half]}", f"data:{EVENT[half:]}"]
    (event,) = events(iter([*lines, "", "id: 8", ""]))
    assert (event.seq, event.kind, event.data["a"]) == (7, "step", 1)


def test_an_event_that_the_line_cut_short_is_not_delivered() -> None:
    assert list(events(iter(["id: 7", f"data: {EVENT}"]))) == []


@pytest.mark.parametrize("data", ["{", "[]", "7", '{"seq": 7}'])
def test_what_is_no_event_is_refused(data: str) -> None:
    with pytest.raises(ClientError, match="no event"):
        list(events(iter([f"data: {data}", ""])))
