from pathlib import Path

import pytest

from service.cli import demo
from service.cli.errors import CliError
from service.cli.output import show
from service.client import Client
from service.settings import Settings
from tests.unit.service.cli.recorded import DATASET, STUDY, RecordedServer


def put_mnist(folder: Path) -> Path:
    place = folder / "mnist"
    place.mkdir(parents=True)
    for split in ("train", "test"):
        (place / f"{split}.parquet").touch()
    return place


class TestReport:
    def test_it_says_everything_that_the_demo_owes(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        show(demo.report(STUDY, url="http://127.0.0.1:9", home=tmp_path / ".tan"))
        shown = " ".join(capsys.readouterr().out.split())
        for words in (
            "B = 256, σ = 4.883, S = 300, q = 0.19768",
            "2.941 (PLD), 3.201 (RDP)",
            "validation accuracy 93.0 % (simulation, not private)",
            "test accuracy 92.5 %",
            "ε = 2.941 at δ = 1e-05, accountant PLD, neighbours add_or_remove_one",
            "declared_unaccounted: search on private data NOT accounted",
            "charged 300 of 312 steps, the rest given back, entry 54 of digits",
            "http://127.0.0.1:9 (stopped now; `tan-cli serve --home",
        ):
            assert words in shown


class TestRegisterMissing:
    def test_mnist_is_registered_once_through_the_api(
        self, server: RecordedServer, tmp_path: Path
    ) -> None:
        place = put_mnist(tmp_path)
        with Client(server.url) as client:
            demo.register_missing(client, ["mnist"], [tmp_path / "nowhere", tmp_path])
            server.datasets.append({**DATASET, "name": "mnist"})
            demo.register_missing(client, ["mnist", "digits"], [])
        [(registration, _)] = server.asked("POST /datasets")
        assert registration is not None
        assert registration["path"] == str(place)
        assert registration["waiver"]

    def test_data_that_is_not_at_hand_is_said_with_every_place_looked_at(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(CliError, match="TAN_DATA_DIR") as caught:
            demo.find_parquet("mnist", [tmp_path / "a", tmp_path / "b"])
        assert str(tmp_path / "a" / "mnist") in caught.value.message
        assert str(tmp_path / "b" / "mnist") in caught.value.message


class TestPlaces:
    def test_the_home_is_the_checkouts_unless_it_is_stated(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("TAN_HOME", raising=False)
        assert demo.demo_home(Settings()).name == ".tan"
        monkeypatch.setenv("TAN_HOME", str(tmp_path))
        assert demo.demo_home(Settings()) == tmp_path

    def test_the_stated_data_folder_is_looked_at_first(self, tmp_path: Path) -> None:
        assert demo.data_folders(Settings(data_dir=tmp_path))[0] == tmp_path

    def test_the_names_of_a_malformed_study_do_no_harm(self) -> None:
        assert demo.dataset_names({"dataset": 3, "search": []}) == []
        assert demo.dataset_names({"dataset": "a", "search": {"dataset": "b"}}) == ["a", "b"]


def test_without_a_study_the_usage_is_bad_input() -> None:
    assert demo.main([]) == 2
