"""Which features the candidates of a search may be trained on: all are computed before the first one is."""

from collections.abc import Iterable, Mapping
from itertools import product

from tan_core.spec.fields import field_of
from tan_core.spec.models import ExternalModel, Model, ModelSpec
from tan_core.spec.space import Choices, Dimension, Scalar
from tan_core.spec.train import UNAUGMENTED, TrainerConfig


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


def varied_before_classifier(
    model: ModelSpec, trainer: TrainerConfig, searched: Iterable[str]
) -> list[str]:
    """Fields by which records, or layers before the classifier, are not the same at every step of every candidate.

    Args:
        model: the fixed values of ``model``.
        trainer: the fixed values of ``train``.
        searched: keys of ``search.space``.

    Example:
        >>> from tan_core.spec.models import MlpModel
        >>> varied_before_classifier(MlpModel(), TrainerConfig(horizontal_flip=True), ["learning_rate", "hidden"])
        ['train.horizontal_flip', 'search.space.hidden']
    """
    augmented = [
        f"train.{name}"
        for name, accepted in UNAUGMENTED.items()
        if getattr(trainer, name) not in accepted
    ]
    places = {key: field_of(key, model) for key in searched}
    return augmented + [
        f"search.space.{key}"
        for key, place in places.items()
        if place is None or place[0] == "model" or place[1] in UNAUGMENTED
    ]


def features_note(model: ModelSpec, trainer: TrainerConfig, searched: Iterable[str]) -> str | None:
    """Whether a network whose classifier alone is trained runs once for each record, or at every step; None: more is trained.

    Example:
        >>> from tan_core.spec.models import MlpModel
        >>> model = MlpModel.model_validate({"pretrained": {"path": "a.pt", "data": "public", "train": "classifier"}})
        >>> features_note(model, TrainerConfig(), [])
        'only the classifier is trained: the features of each record are computed once'
    """
    if not model.trains_classifier_alone or model.has_frozen_features:
        return None
    said = "only the classifier is trained"
    if varied := varied_before_classifier(model, trainer, searched):
        return (
            f"{said}, but the whole model runs at every step because of {', '.join(varied)}: without, the features of each "
            "record are computed once"
        )
    said = f"{said}: the features of each record are computed once"
    if not isinstance(model, ExternalModel):
        return said
    return f"{said} if the model's output is what its last linear layer makes of vectors, else the whole model runs at every step"


def _is_of_features(model: Model, place: tuple[str, str]) -> bool:
    return place[0] == "model" and place[1] in model.feature_options


def _values(dimension: Dimension) -> list[Scalar]:
    """What a feature's option may be; none of them is a number."""
    if isinstance(dimension, Choices):
        return list(dimension.choices)
    assert isinstance(dimension, str | bool)  # noqa: S101 the study accepted it
    return [dimension]
