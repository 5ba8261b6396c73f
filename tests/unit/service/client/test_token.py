"""A token that no header can carry is refused before anything is sent, and is in no message."""

import httpx
import pytest

from service.client import Client, UnsendableTokenError


@pytest.mark.parametrize(
    ("token", "position"),
    [
        ("sekret\r", 7),
        ("sekret\n", 7),
        ("sekret ", 7),
        (" sekret", 1),
        ("s\x00ekret", 2),
        ("sékret", 2),
        ("sekret\N{ZERO WIDTH SPACE}", 7),
    ],
)
def test_it_is_refused_by_its_place_alone(token: str, position: int) -> None:
    with pytest.raises(UnsendableTokenError, match="a header cannot carry") as refused:
        Client("http://x", token=token)
    assert refused.value.position == position
    assert "kret" not in f"{refused.value!s} {refused.value!r}"
    assert refused.value.__cause__ is refused.value.__context__ is None


@pytest.mark.parametrize("token", ["tan_0123_abcd", "a passphrase of words", "!~"])
def test_what_a_header_can_carry_is_sent_as_it_is(token: str) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200, json={"items": []})

    with Client("http://x", token=token, transport=httpx.MockTransport(answer)) as client:
        client.list_datasets()
    assert seen == [f"Bearer {token}"]
