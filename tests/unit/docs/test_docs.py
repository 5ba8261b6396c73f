"""What the documents say is held to the code."""

import re
from pathlib import Path

import pytest
import typer.main
import yaml

from service.cli.main import app
from service.cli.template import STUDY
from service.settings import Settings
from tan_core.planner import plan_study
from tan_core.spec import SearchSpec, StudySpec, TrainSpec
from tan_core.spec.yaml import load_study
from tests.privacy_faults import FAULTS

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
DECISION_LIST = ROOT / "docs" / "decisions" / "README.md"
SECTIONS = ["Context", "Decision", "Consequences", "Alternatives considered", "References"]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    ROOT / "deploy" / "README.md",
    ROOT / "examples" / "README.md",
    DECISION_LIST,
    *DECISIONS,
]


class TestReadme:
    @pytest.mark.parametrize("name", sorted(Settings.model_fields))
    def test_every_setting_is_documented(self, name: str) -> None:
        alias = Settings.model_fields[name].validation_alias
        assert f"| `{alias or f'TAN_{name.upper()}'}` |" in README

    def test_every_documented_variable_is_read_somewhere(self) -> None:
        documented = set(re.findall(r"^\| `TAN_([A-Z_]+)` \|", README, re.MULTILINE))
        read = {name.upper() for name in Settings.model_fields}
        assert documented - read == {"API_URL", "SECRETS_DIR", "TORCH", "TORCH_INDEX"}
        install = (ROOT / "deploy" / "install.sh").read_text()
        assert "TAN_TORCH:-" in install
        assert "TAN_TORCH_INDEX:-" in install

    def test_every_command_is_documented(self) -> None:
        commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
        names = {
            " ".join([name, *verb])
            for name, command in commands.items()
            for verb in [[each] for each in getattr(command, "commands", {})] or [[]]
        }
        section = README.partition("## tan-cli")[2].partition("\n## ")[0]
        assert {name for name in names if f"`{name}`" not in section} == set()

    def test_every_make_target_it_names_exists(self) -> None:
        makefile = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"make ([a-z-]+)", README))
        assert {
            name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)
        } == set()

    def test_the_study_it_explains_is_the_example(self) -> None:
        shown = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
        assert shown
        assert yaml.safe_load(shown[1]) == yaml.safe_load(
            (ROOT / "examples/digits.yaml").read_text()
        )


class TestExamples:
    @pytest.mark.parametrize(
        "path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name
    )
    def test_every_example_is_a_valid_study(self, path: Path) -> None:
        assert load_study(path.read_text()).name

    @pytest.mark.parametrize(
        "path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name
    )
    def test_the_rungs_that_its_comment_names_are_those_of_its_plan(self, path: Path) -> None:
        study = load_study(path.read_text())
        batch = study.train.batch_size
        assert batch != "auto"
        comments = re.findall(r"^  rungs: .*#(.*)", path.read_text(), re.MULTILINE)
        assert len(comments) == study.has_search
        if not study.has_search:
            return

        (comment,) = comments
        num_examples = 1295 if study.dataset == "digits" else 45_000
        plan = plan_study(study, num_examples=num_examples, num_validation=143)
        rungs = plan.rungs

        assert ("a quarter of the steps" in comment) == (plan.heat is not None)
        assert re.findall(r"B/(\d+)", comment) == [f"{batch / rung:g}" for rung in rungs]

    def test_the_template_is_the_first_example(self) -> None:
        assert (ROOT / "examples" / "digits.yaml").read_text() == STUDY

    def test_every_key_is_explained(self) -> None:
        text = (ROOT / "examples" / "README.md").read_text()
        keys = [
            *(f"search.{name}" for name in SearchSpec.model_fields),
            *(name for name in TrainSpec.model_fields),
            *(name for name in StudySpec.model_fields if name not in ("search", "train", "model")),
        ]
        assert [key for key in keys if key not in text] == []


def test_every_fault_that_the_self_test_must_find_is_in_its_table() -> None:
    page = (ROOT / "docs" / "selftest.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| `([a-z0-9_.]+)` \| .* \|$", page, re.MULTILINE)

    assert [(fault.name, fault.finding) for fault in FAULTS] == rows


class TestDecisions:
    def test_they_are_numbered_without_gaps(self) -> None:
        numbers = [int(path.name[:4]) for path in DECISIONS]
        assert numbers == list(range(1, len(numbers) + 1))

    def test_each_is_listed_once_by_its_title(self) -> None:
        titles = [
            (path.read_text().partition("\n")[0].removeprefix("# "), path.name)
            for path in DECISIONS
        ]
        listed = re.findall(r"^- \[(.+)\]\((.+)\)$", DECISION_LIST.read_text(), re.MULTILINE)
        assert sorted(listed) == sorted(titles)

    @pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
    def test_each_has_every_section_and_says_how_it_is_enforced(self, path: Path) -> None:
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. ")
        assert re.search(r"^- Status: \w+\n- Date: \d{4}-\d\d-\d\d$", text, re.MULTILINE)
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
        assert "Enforced: " in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []
