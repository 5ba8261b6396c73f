import pytest

from service.logs.redact import redact


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("TAN_RUN_TOKEN=0123456789abcdef", "TAN_RUN_TOKEN=***"),
        ("{'AWS_SECRET_ACCESS_KEY': 'wJalrXUtnFEMI'}", "{'AWS_SECRET_ACCESS_KEY': '***'}"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
        ("token tan_9f8e7d_AbCdEfGh-1_2345678 was refused", "token tan_*** was refused"),
        ("https://me:p@proxy:8080/x", "https://me:***@proxy:8080/x"),
        ("exact 5ecre7 value", "exact *** value"),
    ],
)
def test_what_opens_something_is_hidden(said: str, shown: str) -> None:
    assert redact(said, known=["5ecre7"]) == shown


@pytest.mark.parametrize(
    "said",
    [
        "step 10 of 100, 3.2 steps per second",
        "tokens per second: 1.5",
        "tan_core.errors.ParameterError: clip_norm must be positive",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "http://127.0.0.1:8265/api/jobs",
    ],
)
def test_what_people_need_stays(said: str) -> None:
    assert redact(said) == said


def test_a_word_without_end_holds_nobody_up() -> None:
    said = "a" * 2**17  # in a time that grows with its square this would take minutes
    assert redact(said) == said
