"""Where a fault of a study.yaml is in its text."""

import pytest
import yaml

from service.dashboard.faults import Fault, faults_of, line_of
from service.errors import InvalidInputError
from service.trial_spec import sparse
from tan_core.errors import ParameterError
from tan_core.spec import StudySpec
from tan_core.spec.yaml import parse_yaml
from tests.integration.dashboard import seeding

TEXT = """\
name: first
privacy: {epsilon: 3, delta: 1e-5}
search:
  rungs: [8, 32]
  space:
    head.lr: {low: 0.1,
              high: 4}
"""


class TestLineOf:
    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("name", 1),
            ("privacy.delta", 2),
            ("search.rungs.1", 4),
            ("search.space.head.lr", 6),
            ("search.space.head.lr.high", 7),
            ("search.accounting", 3),  # missing: its parent
            ("search.rungs.7", 4),
            ("train", None),
        ],
    )
    def test_it_is_that_of_the_deepest_part_that_is_written(
        self, path: str, line: int | None
    ) -> None:
        assert line_of(yaml.compose(TEXT), path) == line


class TestFaultsOf:
    def test_each_field_has_its_line(self) -> None:
        error = InvalidInputError.at("privacy.delta", "must be below 1", 2)

        assert faults_of(error, TEXT) == [Fault("privacy.delta", "must be below 1", 2, 2)]

    def test_what_is_no_yaml_has_the_line_where_reading_stopped(self) -> None:
        text = "name: a\nname: b\n"
        with pytest.raises(ParameterError) as caught:
            parse_yaml(text)

        (fault,) = faults_of(caught.value, text)

        assert fault.line == 2
        assert "given twice" in fault.message


def test_a_sparse_spec_is_the_same_study() -> None:
    spec = seeding.spec()
    written = sparse(spec.model_dump(mode="json"))

    assert StudySpec.model_validate(written) == spec
    assert "priority" not in written
