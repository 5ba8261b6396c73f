"""A setting that nobody reads is told, with the name that was meant."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from service.app import create_app
from service.app import main as serve_api
from service.db.migrate import main as migrate
from service.local.__main__ import main as serve_locally
from service.orchestrator.__main__ import main as orchestrate
from service.settings import Settings, unread_settings


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TAN_MAX_RUNING_STUDIES", "TAN_MAX_RUNNING_STUDIES"),
        ("TAN_WORKER_ULR", "TAN_WORKER_URL"),
        ("TAN_DATABASE", "TAN_DATABASE_URL"),
    ],
)
def test_a_misspelt_name_comes_with_the_one_that_was_meant(name: str, meant: str) -> None:
    (told,) = unread_settings({name: "x", "PATH": "/bin"})

    assert told == f"{name} is no setting and changes nothing: did you mean {meant}?"


def test_a_name_like_no_other_is_told_as_well() -> None:
    (told,) = unread_settings({"TAN_XYZZY": "1"})

    assert told.startswith("TAN_XYZZY is no setting")
    assert "did you mean" not in told


def test_settings_and_what_kubernetes_says_of_services_are_none_of_them() -> None:
    ours = {f"TAN_{name.upper()}": "x" for name in Settings.model_fields}
    others = ("TAN_API_URL", "TAN_SECRETS_DIR", "TAN_TORCH", "TAN_TORCH_INDEX")
    kubernetes = (
        "TAN_SEARCH_API_SERVICE_HOST",
        "TAN_SEARCH_API_SERVICE_PORT_HTTP",
        "TAN_SEARCH_API_PORT",
        "TAN_SEARCH_API_PORT_8321_TCP",
        "TAN_SEARCH_API_PORT_8321_TCP_ADDR",
    )

    assert unread_settings({**ours, **dict.fromkeys([*others, *kubernetes], "x")}) == []


@pytest.mark.parametrize("value", ["", "/run/pulse"])
def test_an_empty_pulse_file_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAN_PULSE_FILE", value)

    assert str(Settings().pulse_file or "") == value


def test_the_pool_of_a_process_is_as_large_as_is_set(tmp_path: Path) -> None:
    named = SecretStr("postgresql://tan@127.0.0.1:1/none")
    app = create_app(Settings(home=tmp_path, database_url=named, database_pool=7))

    assert app.state.context.database.engine.pool.size() == 7


@pytest.mark.parametrize(
    ("token", "is_weak"), [(None, False), ("a" * 15, True), ("a" * 16, False), ("s", True)]
)
def test_a_token_that_could_be_guessed_is_told_without_it(token: str | None, is_weak: bool) -> None:
    said = Settings(api_token=SecretStr(token) if token else None).weak_token

    assert (said is not None) == is_weak
    assert "aaa" not in (said or "")


@pytest.mark.parametrize(("host", "starts"), [("0.0.0.0", False), ("127.0.0.1", True)])
def test_with_a_short_token_nothing_but_this_machine_is_served(
    host: str, starts: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Settings] = []

    class Supervisor:
        def __init__(self, settings: Settings, **_: object) -> None:
            self._settings = settings

        def run(self, **_: object) -> None:
            ran.append(self._settings)

    monkeypatch.setattr("service.local.__main__.Supervisor", Supervisor)
    monkeypatch.setenv("TAN_HOST", host)
    monkeypatch.setenv("TAN_API_TOKEN", "sesame")

    assert serve_locally() == (0 if starts else 1)
    assert bool(ran) == starts
    assert "TAN_API_TOKEN has fewer than 16 characters" in capsys.readouterr().err
    if not starts:
        assert serve_api() == 2


def test_a_setting_that_cannot_be_had_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TAN_RATE_LIMIT", "sesame")
    monkeypatch.setenv("TAN_WEBHOOK_URLS", "ftp://hooks.example/sesame")

    assert serve_locally() == 1
    said = capsys.readouterr().err
    assert "tan-cli serve: TAN_RATE_LIMIT: Value error, expected REQUESTS_PER_SECOND,BURST" in said
    assert "TAN_WEBHOOK_URLS: " in said
    assert "sesame" not in said
    for main, code in ((serve_api, 2), (orchestrate, 2), (migrate, 1)):
        caplog.clear()
        assert main() == code
        assert "TAN_RATE_LIMIT: " in caplog.text
        assert "sesame" not in caplog.text


@pytest.mark.parametrize("proxies", ["*", "127.0.0.1", "10.1.0.0/16, fd00::/8,::1", "", None])
def test_proxies_are_addresses_and_networks(proxies: str | None) -> None:
    assert Settings(trusted_proxies=proxies).trusted_proxies == proxies


@pytest.mark.parametrize("proxies", ["proxy.local", "10.0.0.7;10.0.0.8", "10.0.0.7/24", "*,::1"])
def test_a_proxy_that_no_caller_could_be_is_refused(proxies: str) -> None:
    """Its callers would all have its own address, and cookies would not be for TLS alone."""
    with pytest.raises(ValidationError, match="accepted: addresses and networks such as"):
        Settings(trusted_proxies=proxies)


@pytest.mark.parametrize(
    ("mode", "is_told"), [(0o700, False), (0o711, False), (0o750, False), (0o755, True)], ids=oct
)
def test_a_home_that_everybody_may_look_into_is_told(
    mode: int, is_told: bool, tmp_path: Path
) -> None:
    tmp_path.chmod(mode)

    said = Settings(home=tmp_path).open_home

    assert (said is not None) == is_told
    assert (said or "chmod 7").count("chmod 7") == 1
    assert Settings(home=tmp_path / "none").open_home is None


def test_a_variable_that_is_empty_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TAN_{name.upper()}", raising=False)
    unset = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"TAN_{name.upper()}", "")

    assert Settings() == unset
