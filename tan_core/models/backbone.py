"""What stands before the classifier of a model that trains it alone: an extractor.

Of a model with a name of its own it is all layers but the last. The code of others does not say what stands
there: they run whole, and what enters their classifier is listened to, where one run shows that it is all that
their output is made of.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.errors import ModelError
from tan_core.models.changed import is_changed
from tan_core.models.extractor import Extractor
from tan_core.models.pretrained import classifier_of
from tan_core.spec.models import ModelSpec

_ON_DEVICE: Final = 256
"""Records at once on a GPU, which few do not fill."""
_DIGITS: Final = 4
"""Of what names an extractor by what it makes of images: the same on machines that round differently."""


class Backbone(Extractor):
    """A part of a model of which nothing is trained, and its weights.

    Args:
        fingerprint: names the architecture and the weights.
    """

    def __init__(self, fingerprint: str) -> None:
        super().__init__()
        self._fingerprint = fingerprint

    @property
    def records_at_once(self) -> int:
        """As of any extractor on a processor, more on a GPU."""
        tensor = next((each for each in self.state_dict().values()), None)
        is_elsewhere = tensor is not None and tensor.device.type != "cpu"
        return _ON_DEVICE if is_elsewhere else super().records_at_once

    @property
    def fingerprint(self) -> str:
        """The model, and the SHA-256 of the file that its weights are from."""
        return self._fingerprint


class FrozenBackbone(Backbone):
    """The layers before the classifier, under the names that they have in the whole model.

    Its state and that of a trained classifier are together the state of the model.

    Args:
        layers: by name, in order; none of their parameters is trained.
        fingerprint: names the architecture and the weights.
    """

    def __init__(self, layers: Mapping[str, nn.Module], fingerprint: str) -> None:
        super().__init__(fingerprint)
        for name, layer in layers.items():
            self.add_module(name, layer)

    @classmethod
    def of(cls, spec: ModelSpec, model: nn.Sequential) -> Self:
        """All but the last layer of a model that :func:`~tan_core.models.pretrained.begin_from` has frozen."""
        layers = dict([*model.named_children()][:-1])
        return cls(layers, json.dumps(["backbone-1", *_named(spec)]))

    def forward(self, images: Tensor) -> Tensor:
        """What enters the classifier: [N, ...] -> [N, F]."""
        for layer in self.children():
            images = layer(images)
        return images


class ListenedBackbone(Backbone):
    """A whole model as it is when it is used, and what enters its classifier when it runs.

    Args:
        model: with a :class:`ClassifierPlace`; none of its parameters is trained but those of the classifier. It is
            put into the mode in which it is used: layers that would drop something drop nothing, and batch
            normalisation has the statistics of the file.
        classifier: its name.
        fingerprint: names the architecture and the weights.
    """

    def __init__(self, model: nn.Module, classifier: str, fingerprint: str) -> None:
        super().__init__(fingerprint)
        self.model = model.eval()
        self._classifier = classifier

    @classmethod
    def of(
        cls, spec: ModelSpec, model: nn.Module, classifier: str, *, shape: Sequence[int]
    ) -> Self:
        """Of a model that :func:`~tan_core.models.pretrained.begin_from` has frozen.

        The code of a model may change and its name stay, so that the fingerprint also says what comes out of it.

        Raises:
            ModelError: with these weights its output is not what its classifier makes of features.
        """
        found, layer = (
            cls(model, classifier, ""),
            cast("nn.Linear", model.get_submodule(classifier)),
        )
        with torch.inference_mode():
            features, output = _heard(model, layer, _images(shape))
            if not _is_made_by(layer, features, output):
                raise ModelError(
                    f"the output of model {spec.name} is not what {classifier!r} makes of vectors; accepted: train: all",
                    field="model.pretrained.train",
                )
        told = [
            f"{number:.{_DIGITS}g}" for each in features for number in (each.mean(), each.norm())
        ]
        found._fingerprint = json.dumps(["listened-1", *_named(spec), told])
        return found

    def forward(self, images: Tensor) -> Tensor:
        """What enters the classifier: [N, ...] -> [N, F]."""
        return _heard(self.model, self.model.get_submodule(self._classifier), images)[0]

    def weights(self) -> dict[str, Tensor]:
        """Those of the model, but for the classifier's."""
        own = f"{self._classifier}."
        state = self.model.state_dict()
        return {name: value for name, value in state.items() if not name.startswith(own)}


@dataclass(frozen=True, slots=True)
class ClassifierPlace:
    """Where a model has its classifier, and what that is."""

    name: str
    num_features: int
    has_bias: bool

    def fill(self, num_classes: int) -> nn.Module:
        """A classifier without values, alone under its name in the model."""
        found: nn.Module = nn.Linear(
            self.num_features, num_classes, bias=self.has_bias, device="meta"
        )
        for part in reversed(self.name.split(".")):
            found = nn.Sequential(OrderedDict(cast("Any", {part: found})))
        return found


def place_of_classifier(
    model: nn.Module, *, shape: Sequence[int], num_classes: int
) -> ClassifierPlace | None:
    """Where the classifier of a model stands, if its output is what that makes of features, [B, F], and nothing else.

    One run on random images shows it, in the mode in which a model is used: the classifier runs once, and what it makes of
    what entered it is what comes out, to the last bit.

    Args:
        model: reads [B, *shape] floats; its mode may change.
        shape: of one example.
        num_classes: of the model.

    Returns:
        None where the model has to be run whole.
    """
    found = classifier_of(model, num_classes)
    if found is None or not found[0] or not _stands_alone(model, found[1]):
        return None
    name, layer = found
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            features, output = _heard(model, layer, _images(shape))
        except _NotHeardError:
            return None
        is_vector = features.shape == (2, layer.in_features) and features.dtype == torch.float32
        is_all = is_vector and _is_made_by(layer, features, output)
    has_bias = "bias" in dict(layer.named_parameters())
    return ClassifierPlace(name, layer.in_features, has_bias) if is_all else None


def _stands_alone(model: nn.Module, classifier: nn.Linear) -> bool:
    """Whether it is a weight and a bias that no other layer has, and nothing was added to it."""
    own = dict(classifier.named_parameters())
    others = {
        id(p)
        for layer in model.modules()
        if layer is not classifier
        for p in layer.parameters(recurse=False)
    }
    is_shared = any(id(p) in others for p in own.values())
    return own.keys() <= {"weight", "bias"} and not is_shared and not is_changed(classifier)


def _images(shape: Sequence[int]) -> Tensor:
    """[2, *shape]: random ones, always the same."""
    return torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


def _is_made_by(classifier: nn.Linear, features: Tensor, output: Tensor) -> bool:
    """Whether an output is what torch's linear map makes of features, to the last bit.

    A class of their own, such as timm's, may compute anything; and weights that nobody has trained may make what is no number.
    """
    made = functional.linear(features, classifier.weight, classifier.bias)
    is_nan = torch.equal(made.isnan(), output.isnan())
    return is_nan and torch.equal(made.nan_to_num(), output.nan_to_num())


class _NotHeardError(Exception):
    """A classifier did not run once on one tensor."""


def _heard(model: nn.Module, classifier: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """What enters the classifier, and what comes out of the model."""
    entered: list[object] = []
    listening = classifier.register_forward_pre_hook(
        lambda _, args, kwargs: entered.extend((*args, *kwargs.values())), with_kwargs=True
    )
    try:
        output = model(images)
    finally:
        listening.remove()
    (features,) = entered if len(entered) == 1 else (None,)
    if not isinstance(features, Tensor) or not isinstance(output, Tensor):
        raise _NotHeardError
    return features, output


def _named(spec: ModelSpec) -> list[object]:
    """The architecture, and the file."""
    architecture = spec.model_dump(mode="json", exclude={"pretrained"})
    return [architecture, spec.pretrained and spec.pretrained.sha256]
