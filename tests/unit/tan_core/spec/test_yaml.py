import math

import pytest

from tan_core.errors import ParameterError
from tan_core.spec import load_study, parse_yaml, parse_yaml_value

STUDY = """
name: mnist-eps3
privacy: {epsilon: 3.0, delta: 1e-5, accountant: rdp}
dataset: mnist
model:
  name: tanh-cnn
search:
  accounting: declared_unaccounted
  space:
    learning_rate: {low: 0.25, high: 16.0, log: true}
    steps: {choices: [600, 1200, 2400]}
train:
  batch_size: auto
"""


def laughs(levels: int) -> str:
    """Each level refers nine times to the one before."""
    lines = [
        "a0: &a0 [x, x, x, x, x, x, x, x, x]",
        *(
            f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]"
            for level in range(1, levels)
        ),
    ]
    return "\n".join(lines)


class TestParseYaml:
    def test_reads_a_study(self) -> None:
        study = load_study(STUDY)

        assert study.privacy.delta == 1e-5
        assert study.train.batch_size == "auto"

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1e-5", 1e-5), ("1E5", 1e5), ("-2.5e+3", -2500.0), (".5", 0.5), ("3.", 3.0),
            ("3", 3), ("-7", -7), ("0x10", 16), ("1_000", 1000), ("true", True), ("~", None),
            ("no", "no"), ("on", "on"), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"),
            ("'1e-5'", "1e-5"), ("1e", "1e"), ("e5", "e5"),
        ],
    )  # fmt: skip
    def test_a_scalar_is_what_it_looks_like(self, text: str, value: object) -> None:
        found = parse_yaml(f"key: {text}")["key"]
        alone = parse_yaml_value(text)

        assert found == alone == value
        assert type(found) is type(alone) is type(value)

    def test_what_is_no_finite_number_is_left_for_the_spec_to_refuse(self) -> None:
        found = parse_yaml("a: .inf\nb: -.inf\nc: .nan")

        assert (found["a"], found["b"]) == (math.inf, -math.inf)
        assert math.isnan(found["c"])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a: 1\nb: 2\na: 3", r"line 3, column 1: key 'a' is given twice"),
            ("a:\n  b: 1\n  b: 2", r"line 3, column 3: key 'b' is given twice"),
            ("a: [1", r"line 1, column 6: .*expected ',' or ']'"),
            ("a:\n\t- b", r"line 2, column 1: .*'\\t'"),
            ("1: a", r"line 1, column 1: a key must be text"),
            ("? [a]\n: 1", r"line 1, column 3: a key must be text"),
            ("a: *b", r"line 1, column 4: found undefined alias"),
            ("a: !!python/object/apply:os.system [x]", r"line 1, column 4: could not determine"),
            ("a: b\n---\nc: d", r"line 2, column 1: expected a single document"),
            ("a: &a [*a]", r"line 1, column 4: an alias of its own parent"),
            ("a: " + "[" * 5000, r"line 1, column \d+: nested deeper than 32"),
            (laughs(9), r"expands to more than 50000"),
            ("a: [" + "1, " * 60_000 + "]", r"line 1, column 149996: holds more than 50000"),
            ("a: \x00", r"special characters"),
            ("- a", r"expected a mapping of keys, got a list"),
            ("", r"expected a mapping of keys, got nothing"),
        ],
    )
    def test_what_is_not_acceptable_is_refused_with_its_place(
        self, text: str, message: str
    ) -> None:
        with pytest.raises(ParameterError, match=message):
            parse_yaml(text)

    def test_a_document_above_the_size_is_refused_before_it_is_read(self) -> None:
        assert parse_yaml("a: 1", max_bytes=4) == {"a": 1}
        with pytest.raises(ParameterError, match="4 bytes"):
            parse_yaml("a: é", max_bytes=4)

    def test_an_honest_alias_is_accepted(self) -> None:
        assert parse_yaml("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}


class TestParseYamlValue:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "got nothing"),
            ("# 3", "got nothing"),
            ("[1", "line 1, column 3: .*expected ',' or ']'"),
            ("a: b: c", "line 1, column 5: mapping values are not allowed"),
            ("{a: 1, a: 2}", "line 1, column 8: key 'a' is given twice"),
            ("[" * 50, "nested deeper than 32"),
        ],
    )
    def test_what_is_no_value_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            parse_yaml_value(text)
