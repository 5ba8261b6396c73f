from hypothesis import given, settings

from tan_core.mechanism import Mechanism
from tan_core.spec import StudySpec
from tan_core.testing.strategies import gradient_batches, mechanisms, study_specs

MANY = settings(max_examples=60, deadline=None, derandomize=True)


@MANY
@given(study_specs())
def test_studies_are_the_same_once_more_as_they_were_written(spec: StudySpec) -> None:
    assert StudySpec.model_validate(spec.model_dump(mode="json")) == spec


def test_drawn_mechanisms_and_batches_hold_the_corners() -> None:
    drawn: list[Mechanism] = []
    sizes: list[tuple[int, int]] = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(mechanisms(), gradient_batches())
    def draw(mechanism, batch) -> None:
        inputs, labels, views = batch
        drawn.append(mechanism)
        sizes.append((len(labels), views))
        assert inputs.shape == (len(labels) * views, 1, 8, 8)
        assert set(labels) <= {0, 1, 2}

    draw()

    assert {1.0} < {each.sampling_rate for each in drawn}
    assert min(each.steps for each in drawn) == 1
    assert {0, 1} < {size for size, _ in sizes} <= set(range(10))
    assert {views for _, views in sizes} == {1, 4}
