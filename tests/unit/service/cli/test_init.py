"""``tan-cli init``: what is written would be taken, and nothing else is written."""

import json
from pathlib import Path

import jsonschema
import pytest

from service.cli.errors import InputError
from service.cli.init import answered
from service.datasets.schemas import DatasetView
from tan_core.planner import plan_study
from tan_core.spec import load_study
from tan_core.spec.yaml import parse_yaml
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import DATASET, RecordedServer

HINT = "# yaml-language-server: $schema=study.schema.json\n"


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAN_API_URL", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)


ROOT = Path.cwd()


class TestFile:
    def test_without_answers_it_is_the_first_study_with_its_schema_beside_it(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        done = cli("init")
        assert done.code == 0
        assert "tan-cli plan study.yaml" in done.out
        written = (tmp_path / "study.yaml").read_text()
        assert written == HINT + (ROOT / "examples" / "digits.yaml").read_text()
        schema = json.loads((tmp_path / "study.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(parse_yaml(written))

    def test_a_file_that_is_there_stays_unless_it_is_forced(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "study.yaml").write_text("mine")
        refused = cli("init")
        assert (refused.code, "--force" in refused.err) == (2, True)
        assert (tmp_path / "study.yaml").read_text() == "mine"
        assert cli("init", "--force", "--no-schema").code == 0
        assert (tmp_path / "study.yaml").read_text().startswith("# A first study")
        assert not (tmp_path / "study.schema.json").exists()

    def test_as_json_it_says_what_was_written(self, cli: Cli) -> None:
        done = cli("init", "-o", "a.yaml", "--json")
        assert json.loads(done.out) == {"path": "a.yaml", "schema": "study.schema.json"}
        assert cli("init", "a.yaml", "-o", "b.yaml").code == 2

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            (("--epsilon", "-1"), "privacy.epsilon"),
            (("--model", "gpt"), "model.name"),
            (("--dataset", "a b"), "dataset"),
            (("--steps", "many"), "train.steps"),
            (("--trials", "0"), "search.trials"),
            (("--promotion", "maybe"), "promotion"),
            (("--accounting", "none"), "--accounting"),
            (("--search-dataset", "fake"), "search.dataset"),
        ],
    )
    def test_what_no_server_would_take_is_named_and_not_written(
        self, cli: Cli, tmp_path: Path, options: tuple[str, str], path: str
    ) -> None:
        done = cli("init", *options)
        assert done.code == 2
        assert f"  {path}: " in done.err
        assert list(tmp_path.iterdir()) == []

    def test_what_options_say_is_written(self, cli: Cli, tmp_path: Path) -> None:
        done = cli(
            *("init", "--dataset", "cifar10", "--model", "wrn-16-4", "--epsilon", "8"),
            *("--delta", "2.5e-7", "--accounting", "public_proxy", "--search-dataset", "fake"),
            *("--trials", "24", "--batch-size", "4096", "--promotion", "manual"),
        )
        assert done.code == 0, done.err
        study = load_study((tmp_path / "study.yaml").read_text())
        assert (study.name, study.dataset, study.model.name) == (
            "cifar10-eps8",
            "cifar10",
            "wrn-16-4",
        )
        assert (study.privacy.epsilon, study.privacy.delta) == (8, 2.5e-7)
        assert (study.search.dataset, study.search.trials) == ("fake", 24)
        assert (study.train.batch_size, study.train.steps) == (4096, "auto")
        assert study.promotion == "manual"


class TestWithoutASearch:
    def test_the_hyper_parameters_are_written_below_train(self, cli: Cli, tmp_path: Path) -> None:
        assert cli("init", "--accounting", "no_search").code == 0
        study = load_study((tmp_path / "study.yaml").read_text())
        assert not study.has_search
        assert (study.train.learning_rate, study.train.ema_decay) == (1.0, 0.9)

    @pytest.mark.parametrize("option", [("--trials", "3"), ("--search-dataset", "fake")])
    def test_what_only_a_search_reads_is_refused(
        self, cli: Cli, tmp_path: Path, option: tuple[str, str]
    ) -> None:
        done = cli("init", "--accounting", "no_search", *option)
        assert done.code == 2
        assert f"{option[0]}: nothing is searched" in done.err
        assert list(tmp_path.iterdir()) == []


def test_the_first_study_plans(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    study = load_study((tmp_path / "study.yaml").read_text())
    plan = plan_study(study, num_examples=1295)
    assert plan.privacy.epsilon <= 3.0


class TestAnswers:
    def test_every_question_has_a_default_and_takes_another_answer(self) -> None:
        asked: dict[str, str] = {}

        def ask(question: str, default: str) -> str:
            asked[question] = default
            return {"target ε": "1.5", "dataset": "mnist"}.get(question, default)

        answers = answered({"trials": 3}, {}, ask=ask)
        assert "trials" not in asked
        assert (answers.dataset, answers.epsilon, answers.trials) == ("mnist", 1.5, 3)
        assert answers.name == "mnist-eps1.5"
        assert asked["batch size B of the private run"] == "auto"

    def test_what_is_no_number_is_refused(self) -> None:
        with pytest.raises(InputError) as caught:
            answered({}, {}, ask=lambda question, default: "much" if "ε" in question else default)
        assert caught.value.faults[0].value == "much"

    def test_a_registered_dataset_says_what_fits_it(self, server: RecordedServer) -> None:
        table = DatasetView.model_validate(
            DATASET
            | {"name": "adult", "shape": [14], "num_train": 3_000_000, "source": "table"}
            | {"allowed_modes": ["public_proxy"]}
        )
        answers = answered({"dataset": "adult"}, {"adult": table})
        assert (answers.model, answers.delta) == ("mlp", 1e-7)
        assert answers.accounting == "public_proxy"
