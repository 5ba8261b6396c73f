"""Database URLs as users write them."""

import pytest

from service.db.session import normalise_url
from tan_core.errors import ParameterError


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_postgresql_scheme_means_our_driver(scheme: str) -> None:
    url = normalise_url(f"{scheme}://u:p%40ss@h:5/d?sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port, url.database) == (
        "u", "p@ss", "h", 5, "d",
    )  # fmt: skip
    assert url.query == {"sslmode": "require"}


def test_a_password_among_the_parameters_is_shown_as_little_as_one_in_its_place() -> None:
    url = normalise_url("postgresql://h/d?user=u&password=p%40ss&sslmode=require")
    assert (url.username, url.password, dict(url.query)) == ("u", "p@ss", {"sslmode": "require"})
    assert "p%40ss" not in str(url)
    assert "p@ss" not in str(url)


@pytest.mark.parametrize("url", ["sqlite:///x.db", "mysql://u:p@h/d", "postgresql+asyncpg://h/d"])
def test_another_database_is_refused_by_name(url: str) -> None:
    with pytest.raises(ParameterError, match="must be PostgreSQL"):
        normalise_url(url)


@pytest.mark.parametrize("url", ["hunter2", "postgresql://u:hunter2@a:5432,b:5432/d"])
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ParameterError, match="cannot be read") as error:
        normalise_url(url)
    assert "hunter2" not in str(error.value)
