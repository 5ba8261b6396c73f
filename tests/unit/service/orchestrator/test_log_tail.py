"""Of a log of any length a bounded end is held, and where it begins is known to the character."""

import json
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.orchestrator import log_tail
from service.orchestrator.log_tail import KEPT_BYTES, LogTail, Said

# What JSON escapes, by one, two, six and twelve bytes: text of drivers holds all of it.
SAID = st.lists(
    st.sampled_from(["step 7", "\n", "\\", "\\n", '"', "\t", "█", "漢", "🙂", "a" * 30])
)


def read(body: bytes, size: int) -> Said:
    tail = LogTail()
    for start in range(0, len(body), size):
        if tail.add(body[start : start + size]):
            tail.cut()
    return tail.said()


@given(said=SAID.map("".join), size=st.integers(1, 300), times=st.integers(1, 20))
def test_what_is_kept_is_the_end_and_what_went_is_counted(said: str, size: int, times: int) -> None:
    whole = said * times
    body = json.dumps({"logs": whole}).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_tail, "KEPT_BYTES", 200)
        assume("\\" * 25 not in whole)  # what of them begins an escape cannot be told
        found = read(body, size)

    assert whole[found.dropped :] == found.text
    assert len(found.text) <= 400 + size
    assert len(found.text) >= min(len(whole), 200 * 3 // 4 // 12)


def test_a_log_of_a_hundred_megabytes_takes_a_few() -> None:
    line = json.dumps("step 7 of 300: ███ and what a factory prints\n")[1:-1].encode()
    part = line * 20_000
    num_parts = 100 * 2**20 // len(part)
    tail = LogTail()
    tracemalloc.start()
    tail.add(b'{"logs": "')
    for _ in range(num_parts):
        if tail.add(part):
            tail.cut()
    tail.add(b'"}')
    found = tail.said()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.dropped + len(found.text) == num_parts * 20_000 * 45
    assert len(found.text) > 2**20
    assert peak < 10 * KEPT_BYTES


@pytest.mark.parametrize("body", [b"[]", b"<html>", b'{"logs": "cut'])
def test_what_is_no_log_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"mapping|line 1"):
        read(body, 100)


def test_an_empty_answer_says_nothing() -> None:
    assert read(b'{"logs": null}', 5) == read(b"{}", 5) == Said("")
