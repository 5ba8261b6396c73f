"""A setting that nobody reads is told, with the name that was meant."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from service.app import create_app
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
