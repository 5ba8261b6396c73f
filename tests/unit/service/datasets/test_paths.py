"""No file outside the folders that the operator allows is read by naming it as a dataset."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.datasets.paths import check
from service.errors import InvalidInputError
from service.settings import Settings


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.csv").write_text("a,label\n")
    (tmp_path / "secret.csv").write_text("a,label\n")
    return folder


def refused(path: object, settings: Settings) -> str:
    with pytest.raises(InvalidInputError) as caught:
        check(str(path), settings)
    (problem,) = caught.value.problems
    assert problem.path == "path"
    return problem.message


class TestAllowedFolders:
    def test_what_lies_below_is_accepted(self, allowed: Path) -> None:
        settings = Settings(host="0.0.0.0", allowed_data_dirs=f"/nowhere, {allowed}")
        for path in (allowed, allowed / "deep", allowed / "deep/a.csv", allowed / "deep/../deep"):
            check(str(path), settings)

    @pytest.mark.parametrize(
        "path", ["..", "../secret.csv", "deep/../../secret.csv", "../data2", "/"]
    )
    def test_what_lies_elsewhere_is_refused(self, allowed: Path, path: str) -> None:
        message = refused(allowed / path, Settings(allowed_data_dirs=str(allowed)))
        assert f"TAN_ALLOWED_DATA_DIRS: {allowed}" in message

    def test_whether_it_exists_is_not_told(self, allowed: Path) -> None:
        settings = Settings(allowed_data_dirs=str(allowed))
        there = refused(allowed.parent / "secret.csv", settings)
        assert refused(allowed.parent / "no-such.csv", settings) == there

    @pytest.mark.parametrize("link", ["out", "deep/out"])
    @pytest.mark.parametrize("target", ["secret.csv", ""])
    def test_a_link_that_leads_out_is_refused_wherever_it_is(
        self, allowed: Path, link: str, target: str
    ) -> None:
        settings = Settings(allowed_data_dirs=str(allowed))
        (allowed / link).symlink_to(allowed.parent / target)
        refused(allowed / link, settings)
        refused(allowed, settings)

    def test_so_is_one_behind_another_link(self, allowed: Path, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "out").symlink_to(tmp_path / "secret.csv")
        (allowed / "in").symlink_to(tmp_path / "other")
        refused(allowed, Settings(allowed_data_dirs=f"{allowed},{tmp_path / 'other'}"))

    def test_links_among_allowed_folders_are_followed(self, allowed: Path) -> None:
        (allowed / "link").symlink_to(allowed / "deep")
        (allowed / "deep" / "up").symlink_to(allowed)
        check(str(allowed / "link"), Settings(allowed_data_dirs=str(allowed)))

    def test_an_allowed_folder_may_itself_be_a_link(self, allowed: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(allowed)
        check(str(tmp_path / "link" / "deep"), Settings(allowed_data_dirs=str(tmp_path / "link")))

    def test_links_in_a_circle_are_refused(self, allowed: Path) -> None:
        (allowed / "a").symlink_to(allowed / "b")
        (allowed / "b").symlink_to(allowed / "a")
        check(str(allowed / "deep"), Settings(allowed_data_dirs=str(allowed)))
        refused(allowed / "a", Settings(allowed_data_dirs=str(allowed)))


class TestNoFolder:
    def test_on_this_machine_alone_any_path_will_do(self, allowed: Path) -> None:
        check(str(allowed.parent / "secret.csv"), Settings(host="127.0.0.1"))

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
    def test_where_others_are_served_none_will(self, allowed: Path, host: str) -> None:
        assert "TAN_ALLOWED_DATA_DIRS" in refused(allowed, Settings(host=host))


class TestAddresses:
    @pytest.mark.parametrize(
        "path", ["http://127.0.0.1:1/x.npz", "https://x/y", "file:///etc/passwd", "s3://b/k"]
    )
    def test_they_are_refused_by_name(self, path: str) -> None:
        assert "nothing is fetched" in refused(path, Settings(host="127.0.0.1"))

    def test_an_allowed_one_is_accepted_and_the_setting_named_where_it_is_not(self) -> None:
        settings = Settings(host="0.0.0.0", allowed_data_urls="s3://b/data/, https://x:8443")
        check("s3://b/data/imagenet", settings)
        check("https://x:8443/a.parquet", settings)
        for path in ("s3://b/database", "s3://b", "https://x/a.parquet", "s3://b/data/../k"):
            message = refused(path, settings)
            assert "nothing is fetched" in message
        assert "TAN_ALLOWED_DATA_URLS allows: s3://b/data, https://x:8443" in refused(
            "s3://b/database", settings
        )

    def test_a_relative_path_is_refused(self) -> None:
        assert "absolute" in refused("x.csv", Settings(host="127.0.0.1"))


@pytest.mark.parametrize("urls", ["data", "file:///data", "s3://u:p@b/data", "s3://b/../x"])
def test_an_address_that_means_different_things_is_refused_in_the_setting(urls: str) -> None:
    with pytest.raises(ValidationError, match="nothing is fetched"):
        Settings(allowed_data_urls=urls)


def test_a_relative_folder_in_the_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="absolute"):
        Settings(allowed_data_dirs="data")
