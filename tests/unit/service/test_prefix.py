"""Which prefixes a proxy may put before every path."""

import pytest
from pydantic import ValidationError

from service.settings import Settings


@pytest.mark.parametrize("prefix", ["", "/tan", "/team-a/tan_2"])
def test_a_prefix_begins_with_a_slash_and_ends_with_none(prefix: str) -> None:
    assert Settings(root_path=prefix).root_path == prefix


@pytest.mark.parametrize(
    "prefix", ["tan", "/tan/", "/", "/a//b", "/a b", "//elsewhere.test", "/a?b"]
)
def test_any_other_is_refused_by_its_name(prefix: str) -> None:
    with pytest.raises(ValidationError, match="root_path"):
        Settings(root_path=prefix)
