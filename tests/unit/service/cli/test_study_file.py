import copy
import io
import shlex
from pathlib import Path

import pytest

from service.cli.errors import Exit, Fault, InputError
from service.cli.study_file import read_mapping, whole_mapping, with_changes


def read(tmp_path: Path, text: str) -> dict:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return read_mapping(str(path))


def test_numbers_are_numbers_as_people_write_them(tmp_path: Path) -> None:
    study = read(tmp_path, "a: 1e-5\nb: 1.0E+3\nc: 3\nd: .5\ne: -2.5\nf: 1_000.5\ng: 2026-01-02\n")
    assert study == {
        "a": 1e-5, "b": 1000.0, "c": 3, "d": 0.5, "e": -2.5, "f": 1000.5, "g": "2026-01-02",
    }  # fmt: skip


def test_standard_input_is_read_for_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("name: x"))
    assert read_mapping("-") == {"name": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "line 1, column 6"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' is given twice"),
        ("- a\n- b", "got a list"),
        ("", "got nothing"),
        ("a: !!python/object:os.system {}", "line 1, column 4"),
        ("a: \x00", "not YAML"),
    ],
)
def test_what_is_no_study_is_refused_with_the_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=r"study\.yaml") as caught:
        read(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.exit_code == Exit.BAD_INPUT


def test_what_json_cannot_carry_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, 'privacy: {epsilon: .inf}\nlist: [1, .nan]\nname: "\\ud800"\n')
    assert [str(fault) for fault in caught.value.faults] == [
        "privacy.epsilon: must be a finite number (got inf)",
        "list.1: must be a finite number (got nan)",
        "name: holds half a surrogate pair, which UTF-8 cannot carry",
    ]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"no such file: nowhere\.yaml"):
        read_mapping("nowhere.yaml")


BASE = {
    "name": "a",
    "privacy": {"epsilon": 3, "delta": 1e-5},
    "search": {"rungs": [8, 32], "space": {"model.options.width": {"low": 1, "high": 8}}},
    "train": None,
}


class TestChanges:
    @pytest.mark.parametrize(
        ("change", "path", "value"),
        [
            ("privacy.epsilon=1", ("privacy", "epsilon"), 1),
            ("privacy.delta=1e-6", ("privacy", "delta"), 1e-6),
            (" name = b=c ", ("name",), "b=c"),
            ("name=no", ("name",), "no"),
            ("name='1'", ("name",), "1"),
            ("search.rungs=[16, 64]", ("search", "rungs"), [16, 64]),
            ("search.budget=null", ("search", "budget"), None),
            ("search.space={steps: 3}", ("search", "space"), {"steps": 3}),
            ("train.steps=300", ("train", "steps"), 300),
            ("model.options.width=4", ("model", "options", "width"), 4),
        ],
    )
    def test_a_key_is_set_to_what_yaml_makes_of_the_value(
        self, change: str, path: tuple[str, ...], value: object
    ) -> None:
        found = with_changes(BASE, [change])
        for name in path:
            found = found[name]
        assert found == value
        assert type(found) is type(value)

    def test_nothing_else_changes_and_the_study_that_is_given_stays(self) -> None:
        before = copy.deepcopy(BASE)
        found = with_changes(BASE, ["privacy.epsilon=1", "evaluation.baseline=true"])
        assert found == {
            **before,
            "privacy": {"epsilon": 1, "delta": 1e-5},
            "evaluation": {"baseline": True},
        }
        assert before == BASE

    def test_later_changes_are_of_what_earlier_ones_left(self) -> None:
        found = with_changes(
            BASE, ["train={steps: 3, workers: 2}", "train.steps=4", "train.steps=5"]
        )
        assert found["train"] == {"steps": 5, "workers": 2}

    def test_an_alias_of_the_file_is_changed_in_one_place_only(self, tmp_path: Path) -> None:
        study = read(tmp_path, "a: &x {low: 1}\nb: *x\n")
        assert with_changes(study, ["b.low=2"]) == {"a": {"low": 1}, "b": {"low": 2}}

    def test_a_key_that_holds_dots_is_found_and_a_new_one_stands_in_quotes(self) -> None:
        found = with_changes(
            BASE,
            ["search.space.model.options.width.high=64", 'search.space."model.options.depth"=2'],
        )
        assert found["search"]["space"] == {
            "model.options.width": {"low": 1, "high": 64},
            "model.options.depth": 2,
        }

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("name", "--set name: expected KEY=VALUE"),
            ("", "--set : expected KEY=VALUE"),
            ("=1", "--set =1: expected a KEY"),
            (" =1", "--set  =1: expected a KEY"),
            ("privacy..epsilon=1", "--set privacy..epsilon=1: expected a KEY"),
            ('"a.b=1', '--set "a.b=1: expected a KEY'),
            ("name.first=a", "--set name.first=a: name is no mapping but a str"),
            ("search.rungs.0=8", "--set search.rungs.0=8: search.rungs is no mapping but a list"),
            ("name=", "--set name=: expected a value, got nothing"),
            ("name=[a", "--set name=[a: line 1, column 3: "),
            ("privacy.epsilon=.nan", "--set privacy.epsilon: must be a finite number (got nan)"),
            ("a={b: [.inf]}", "--set a.b.0: must be a finite number (got inf)"),
            ("a=!!set {b}", "--set a: set is not accepted here"),
            ('a="\\ud800"', "--set a: holds half a surrogate pair"),
            ("a\udcff.b=1", "--set a\udcff: holds half a surrogate pair"),
        ],
    )
    def test_what_cannot_be_set_is_refused_by_the_option(self, change: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            with_changes(BASE, ["name=b", change])
        (fault,) = caught.value.faults
        assert str(fault).startswith(message)
        assert caught.value.exit_code == Exit.BAD_INPUT

    def test_every_fault_is_told_at_once(self) -> None:
        with pytest.raises(InputError) as caught:
            with_changes(BASE, ["name", "privacy.epsilon=.inf", "name.x=1"])
        assert len(caught.value.faults) == 3


class TestWholeMapping:
    HIDDEN = Fault("model.hidden", "unknown key; accepted: pretrained, name", [64])

    def test_what_the_file_has_beside_the_keys_that_were_set_goes_with_the_whole(self) -> None:
        activation = Fault("model.activation", "unknown key; accepted: pretrained, name", "tanh")
        changes = ["name=b", "model.name=linear", "model.pretrained='a: b'"]

        told = whole_mapping(changes, [self.HIDDEN, activation])

        assert told is not None
        option, _, rest = told.partition(" replaces ")
        assert rest == "all of model, without hidden, activation"
        _, value = shlex.split(option)
        whole = {"name": "linear", "pretrained": "a: b"}
        assert with_changes({"model": {"hidden": [64]}}, [value]) == {"model": whole}

    @pytest.mark.parametrize(
        ("change", "path", "message"),
        [
            ("model.hidden=[32]", "model.hidden", "unknown key"),
            ("model.options.x=1", "model.options", "unknown key"),
            ("privacy.epsilon=1", "model.hidden", "unknown key"),
            ("model={name: linear}", "model.hidden", "unknown key"),
            ("privacy.epsilon=1", "privacy.delta", "takes a number"),
            ("name=b", "bogus", "unknown key"),
        ],
    )
    def test_of_what_was_set_itself_or_is_wrong_by_itself_nothing_is_told(
        self, change: str, path: str, message: str
    ) -> None:
        assert whole_mapping([change], [Fault(path, message)]) is None
