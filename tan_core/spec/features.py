"""Which features the candidates of a search may be trained on: all are computed before the first one is."""

from collections.abc import Mapping
from itertools import product

from tan_core.spec.fields import field_of
from tan_core.spec.models import Model, ModelSpec
from tan_core.spec.space import Choices, Dimension, Scalar


def feature_models(model: ModelSpec, space: Mapping[str, Dimension]) -> list[ModelSpec]:
    """A model for each combination of options that features depend on; what else may vary is as ``model`` has it.

    Some may share their features, as ``Model.features`` says.

    Args:
        model: the fixed values of ``model``.
        space: ``search.space``.

    Example:
        >>> from tan_core.spec.models import ScatterLinearModel
        >>> space = {"patches": Choices(choices=[False, True]), "learning_rate": 1.0}
        >>> [each.patches for each in feature_models(ScatterLinearModel(), space)]
        [False, True]
    """
    options = {
        place[1]: _values(dimension)
        for key, dimension in space.items()
        if (place := field_of(key, model)) is not None and _is_of_features(model, place)
    }
    return [
        model.model_copy(update=dict(zip(options, values, strict=True)))
        for values in product(*options.values())
    ]


def scales(model: ModelSpec, space: Mapping[str, Dimension]) -> set[bool]:
    """Whether features of candidates are whitened, which puts learning rates on another scale: one answer, or both."""
    return {each.is_whitened for each in feature_models(model, space)}


def _is_of_features(model: Model, place: tuple[str, str]) -> bool:
    return place[0] == "model" and place[1] in model.feature_options


def _values(dimension: Dimension) -> list[Scalar]:
    """What a feature's option may be; none of them is a number."""
    if isinstance(dimension, Choices):
        return list(dimension.choices)
    assert isinstance(dimension, str | bool)  # noqa: S101 the study accepted it
    return [dimension]
