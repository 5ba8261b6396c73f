"""What a run begins from: the checkpoint if there is one, the inputs, and the model that is trained.

Where only the classifier of a pre-trained model is trained, and nothing that is searched reaches the
layers before it, what they make of a record is the same at every step of every trial: they are an
extractor then, and the classifier is trained on features that are computed once.
"""

import torch
from torch import nn

from tan_core.data.pretrained import locate
from tan_core.engine import Trainer
from tan_core.engine.checkpoint import load_weights
from tan_core.engine.independence import check_independence
from tan_core.errors import ParameterError, PretrainedError
from tan_core.models import (
    Checkpoint,
    build_backbone,
    build_classifier,
    build_head,
    extractor_of,
    has_backbone,
)
from tan_core.models.backbone import ListenedBackbone
from tan_core.models.checkpoint_file import read
from tan_core.models.extractor import Extractor
from tan_core.spec import ModelSpec
from tan_core.spec.features import feature_models, varied_before_classifier
from tan_core.wire import PrivateAssignment, SearchAssignment, TrialWeights
from worker.settings import WorkerSettings


def checkpoint_of(
    assignment: SearchAssignment | PrivateAssignment, settings: WorkerSettings
) -> Checkpoint | None:
    """The file that was fixed at submission, if this job may read it; None where there is none.

    Raises:
        PretrainedError: it lies where this job may not read, or is not that file any more.
    """
    pretrained = assignment.model.pretrained
    if pretrained is None:
        return None
    return read(locate(pretrained.path, settings.pretrained_dir), pretrained.sha256)


def extractor_for(
    assignment: SearchAssignment | PrivateAssignment, checkpoint: Checkpoint | None
) -> Extractor | None:
    """What turns a record into what is trained on; None: the model reads the records."""
    if checkpoint is None or not _trains_on_backbone(assignment):
        return extractor_of(assignment.model)
    shape = assignment.dataset.shape
    backbone = build_backbone(
        assignment.model,
        shape=shape,
        num_classes=assignment.dataset.num_classes,
        checkpoint=checkpoint,
    )
    if isinstance(backbone, ListenedBackbone):
        # Features are as private as records as long as each is of one record: the code is not ours.
        check_independence(backbone.model, shape)
    return backbone


def extractors_for(
    assignment: SearchAssignment, checkpoint: Checkpoint | None
) -> dict[tuple[bool, ...], Extractor | None]:
    """:func:`extractor_for` for each kind of features that candidates may read, by ``Model.features``."""
    if assignment.model.feature_options:
        models = feature_models(assignment.model, assignment.search.space)
        return {model.features: extractor_of(model) for model in models}
    return {assignment.model.features: extractor_for(assignment, checkpoint)}


def model_for(
    assignment: SearchAssignment | PrivateAssignment,
    spec: ModelSpec,
    *,
    generator: torch.Generator,
    checkpoint: Checkpoint | None,
) -> nn.Module:
    """What is trained, of the model ``spec`` that the assignment's becomes in a candidate.

    Raises:
        PretrainedError: the checkpoint is of another model.
    """
    shape, num_classes = assignment.dataset.shape, assignment.dataset.num_classes
    if _trains_on_backbone(assignment):
        return build_classifier(spec, shape=shape, num_classes=num_classes, generator=generator)
    return build_head(
        spec, shape=shape, num_classes=num_classes, generator=generator, checkpoint=checkpoint
    )


def weights_left(
    trainer: Trainer, weights_P: torch.Tensor, checkpoint: Checkpoint | None
) -> dict[str, torch.Tensor]:
    """By name, what a run needs that goes on from these weights of a trial.

    What code of a user's has drawn and frozen is drawn anew in each run, and what is trained makes no sense without it. Where
    there is a checkpoint, it holds all that is frozen.
    """
    if checkpoint is None:
        return trainer.released_weights(weights_P)
    return trainer.trained_weights(weights_P)


def go_on_from(model: nn.Module, begun: TrialWeights) -> None:
    """Give the model the weights that its trial left.

    Raises:
        ParameterError: they are not where they were left. Another attempt may find them.
        PretrainedError: they are of another model.
    """
    what = f"the weights of trial {begun.trial}, from which to go on,"
    try:
        weights = load_weights(begun.path, begun.sha256)
    except ParameterError as error:
        raise ParameterError(f"{what} cannot be read: {error}", field="begin_from") from error
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    strange = {name for name, value in weights.items() if shapes.get(name) != value.shape}
    if differs := sorted((trained - weights.keys()) | strange):
        raise PretrainedError(f"{what} are of another model: {differs[0]}", field="begin_from")
    model.load_state_dict(weights, strict=False)


def _trains_on_backbone(assignment: SearchAssignment | PrivateAssignment) -> bool:
    """Whether the layers before the classifier see the same records under every candidate."""
    searched = assignment.search.space if isinstance(assignment, SearchAssignment) else ()
    varied = varied_before_classifier(assignment.model, assignment.trainer, searched)
    dataset = assignment.dataset
    return not varied and has_backbone(
        assignment.model, shape=dataset.shape, num_classes=dataset.num_classes
    )
