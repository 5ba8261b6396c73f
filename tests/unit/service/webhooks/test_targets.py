from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings
from service.webhooks.outbox import pause_after
from service.webhooks.signature import is_valid, sign, webhook_secret


def test_addresses_are_https_or_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "TAN_WEBHOOK_URLS", "https://hooks.example.org/a?b=c, http://127.0.0.1:9/x,http://[::1]/y"
    )
    assert Settings().webhook_urls == (
        "https://hooks.example.org/a?b=c",
        "http://127.0.0.1:9/x",
        "http://[::1]/y",
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.org/a",
        "ftp://127.0.0.1/a",
        "file:///etc/passwd",
        "https://",
        "https://me:secret@hooks.example.org",
        "https://hooks.example.org:99999/a",
        "http://127.0.0.1.example.org/a",
    ],
)
def test_any_other_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(webhook_urls=url)  # type: ignore[arg-type]
    assert refused.value.errors()[0]["loc"] == ("webhook_urls",)
    assert "None" not in str(refused.value.errors()[0]["msg"])
    assert "secret" not in str(refused.value)


def test_an_address_too_many_is_not_left_out_in_silence() -> None:
    urls = ",".join(f"https://hooks.example.org/{number}" for number in range(21))
    with pytest.raises(ValidationError, match="21 webhook addresses; accepted: 20"):
        Settings(webhook_urls=urls)  # type: ignore[arg-type]


def test_pauses_double_up_to_an_hour() -> None:
    assert [pause_after(tries).total_seconds() for tries in (1, 2, 3, 10, 100)] == [
        5,
        10,
        20,
        2560,
        3600,
    ]
    assert pause_after(1000) == timedelta(hours=1)


def test_the_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "webhook_secret"
    secret = webhook_secret(path)
    assert webhook_secret(path) == secret
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secret) == 64


def test_a_secret_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("hunter2\n")
    with pytest.raises(RuntimeError, match="holds 7 bytes"):
        webhook_secret(tmp_path / "short")


@pytest.mark.parametrize("signature", ["", "v1=ab", "t=x,v1=ab", "t=²,v1=ab", "t=100", "nonsense"])
def test_what_is_no_signature_is_not_valid(signature: str) -> None:
    assert is_valid(b"k" * 16, b"{}", sign(b"k" * 16, b"{}", at=100), now=100)
    assert not is_valid(b"k" * 16, b"{}", signature, now=100)
