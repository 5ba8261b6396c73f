"""What stands before the classifier of a model whose code is not ours: where that is seen, and where it is not."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tan_core.engine.independence import check_independence
from tan_core.engine.linear_classifier import linear_classifier
from tan_core.errors import ModelError, ParameterError
from tan_core.models import build, build_backbone, build_classifier, has_backbone
from tan_core.models.backbone import ListenedBackbone, place_of_classifier
from tan_core.models.checkpoint_file import Checkpoint
from tan_core.spec.models import PythonModel
from tests.unit.tan_core.engine.oracle import assert_exact

SHAPE, CLASSES = (3, 8, 8), 4
SHA256 = "ab" * 32
ZOO = """
import torch
from torch import nn

MADE = []

class Network(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.token = nn.Parameter(torch.full((6,), 0.1))
        self.body = nn.Sequential(nn.Conv2d(channels, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Module()
        self.head.norm, self.head.fc = nn.LayerNorm(6), nn.Linear(6, classes)

    def forward(self, x):
        x = self.body(x).mean((2, 3)) + self.token
        return self.head.fc(self.head.norm(x))

def network(*, shape, num_classes):
    MADE.append(num_classes)
    return Network(shape[0], num_classes)
"""


class Wired(nn.Module):
    """A layer of features, a classifier, and what is made of both."""

    def __init__(self, wiring: Any, classifier: nn.Module | None = None) -> None:
        super().__init__()
        self.wiring = wiring
        self.features = nn.Linear(12, 5)
        self.classifier = classifier or nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.wiring(self, x)


@pytest.fixture(autouse=True)
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "lab_of_backbones.py"
    file.write_text(ZOO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lab_of_backbones", raising=False)
    return file


def spec_of(train: str | None = "classifier", *, sha256: str = SHA256, **more: Any) -> PythonModel:
    pretrained = {"path": "a.pt", "data": "public", "train": train, "sha256": sha256}
    given = {"name": "python:lab_of_backbones:network", "replace_batch_norm": "frozen", **more}
    return PythonModel.model_validate(given | ({"pretrained": pretrained} if train else {}))


def whole(spec: PythonModel, *, seed: int = 0, **more: Any) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return build(spec, shape=SHAPE, num_classes=CLASSES, generator=generator, **more)


def file_of(spec: PythonModel, *, seed: int = 1) -> Checkpoint:
    weights = whole(spec.model_copy(update={"pretrained": None}), seed=seed).state_dict()
    return Checkpoint(path="a.pt", weights=dict(weights))


def backbone_of(spec: PythonModel, file: Checkpoint | None = None) -> Any:
    given = file or file_of(spec)
    return build_backbone(spec, shape=SHAPE, num_classes=CLASSES, checkpoint=given)


def classifier_of(spec: PythonModel, *, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return build_classifier(spec, shape=SHAPE, num_classes=CLASSES, generator=generator)


WAYS = pytest.mark.parametrize("more", [{}, {"input": {"size": 12}}], ids=["alone", "prepared"])


class TestListened:
    @WAYS
    def test_backbone_and_classifier_are_the_model(self, more: dict[str, Any]) -> None:
        spec = spec_of(**more)
        file = file_of(spec)
        model, backbone, classifier = (
            whole(spec, checkpoint=file),
            backbone_of(spec, file),
            classifier_of(spec),
        )

        state = backbone.weights() | classifier.state_dict()

        assert isinstance(backbone, ListenedBackbone)
        assert state.keys() == model.state_dict().keys()
        model.load_state_dict(state)
        inputs = torch.rand(5, *SHAPE)
        torch.testing.assert_close(classifier(backbone(inputs)), model(inputs), rtol=0, atol=1e-6)

    @WAYS
    def test_what_is_trained_is_a_linear_layer_like_any_other(self, more: dict[str, Any]) -> None:
        """So the kernels for one and ensembles of many take it."""
        classifier = classifier_of(spec_of(**more))

        assert linear_classifier(classifier) is not None
        labels = torch.arange(4)
        assert_exact(classifier.double(), torch.randn(4, 6, dtype=torch.float64), labels, views=1)

    def test_it_is_asked_for_where_the_classifier_is_trained_alone(self) -> None:
        for train, expected in (
            ("classifier", True),
            ("all", False),
            ("norms", False),
            (None, False),
        ):
            found = has_backbone(spec_of(train), shape=SHAPE, num_classes=CLASSES)
            assert found is expected, train

    def test_a_classifier_of_a_model_that_trains_more_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="trains its classifier alone") as caught:
            classifier_of(spec_of("all"))

        assert caught.value.field == "spec"

    def test_a_model_is_made_once_for_all_classifiers_of_a_process(self) -> None:
        """A number of classes that nothing else here has: what was found before is remembered."""
        for _ in range(3):
            build_classifier(spec_of(), shape=SHAPE, num_classes=23, generator=torch.Generator())

        made = importlib.import_module("lab_of_backbones").MADE
        assert made.count(23) == 1

    def test_equal_seeds_give_equal_classifiers_and_others_do_not(self) -> None:
        first, again, other = (classifier_of(spec_of(), seed=seed) for seed in (1, 1, 2))

        weights = [next(each.parameters()) for each in (first, again, other)]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])

    def test_features_are_named_by_the_file_the_model_and_the_code(self, zoo: Path) -> None:
        file = file_of(spec_of())

        def fingerprint(**more: Any) -> str:
            return backbone_of(spec_of(**more), file).fingerprint

        first = [fingerprint(), fingerprint(sha256="cd" * 32), fingerprint(input={"size": 8})]
        assert fingerprint() == first[0]
        # Another length: Python reads the bytecode of a file whose second and size are as before.
        zoo.write_text(ZOO.replace("mean((2, 3))", "amax((2, 3)).relu()"))
        del sys.modules["lab_of_backbones"]
        importlib.invalidate_caches()

        assert len({*first, fingerprint()}) == 4

    def test_more_records_at_once_are_for_other_devices(self) -> None:
        backbone = backbone_of(spec_of())

        assert backbone.records_at_once == 8
        assert backbone.to("meta").records_at_once == 256


class TestPlace:
    @pytest.mark.parametrize(
        ("wiring", "is_seen"),
        [
            (lambda m, x: m.classifier(m.features(x.flatten(1)).tanh()), True),
            (lambda m, x: m.classifier(input=m.features(x.flatten(1))), True),
            (lambda m, x: m.classifier(m.features(x.flatten(1))).log_softmax(1), False),
            (
                lambda m, x: m.classifier(m.features(x.flatten(1))) + x.mean((1, 2, 3))[:, None],
                False,
            ),
            (
                lambda m, x: m.classifier(
                    m.classifier(m.features(x.flatten(1))) @ torch.ones(CLASSES, 5)
                ),
                False,
            ),
            (
                lambda m, x: m.classifier(m.features(x.flatten(1))[:, None].expand(-1, 3, 5)).mean(
                    1
                ),
                False,
            ),
            (lambda m, x: m.features(x.flatten(1))[:, :CLASSES] + 0, False),
        ],
        ids=["last", "by keyword", "softmax", "skip", "twice", "positions", "unused"],
    )
    def test_it_is_seen_where_the_output_is_what_the_classifier_makes_of_vectors(
        self, wiring: Any, is_seen: bool
    ) -> None:
        place = place_of_classifier(Wired(wiring), shape=(3, 2, 2), num_classes=CLASSES)

        assert (place is not None) is is_seen
        if place is not None:
            assert (place.name, place.num_features, place.has_bias) == ("classifier", 5, True)

    def test_a_classifier_of_another_kind_or_with_a_hook_is_none(self) -> None:
        class Own(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return 2 * super().forward(x)

        def wiring(m: Any, x: Tensor) -> Tensor:
            return m.classifier(m.features(x.flatten(1)))

        hooked = nn.Linear(5, CLASSES)
        hooked.register_forward_pre_hook(lambda _, args: (2 * args[0],))
        for classifier in (Own(5, CLASSES), hooked, nn.Linear(5, CLASSES + 1), nn.Identity()):
            model = Wired(wiring, classifier)
            assert place_of_classifier(model, shape=(3, 2, 2), num_classes=CLASSES) is None
        alone = nn.Linear(3, CLASSES)
        assert place_of_classifier(alone, shape=(3,), num_classes=CLASSES) is None

    def test_a_class_of_others_that_computes_the_same_is_one(self) -> None:
        """As timm's own linear layer is, and where others name and keep their parameters as they like."""

        class Same(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.float())

        model = Wired(lambda m, x: m.classifier(m.features(x.flatten(1))), Same(5, CLASSES))

        assert place_of_classifier(model, shape=(3, 2, 2), num_classes=CLASSES) is not None

    def test_a_classifier_that_shares_its_weight_or_makes_it_of_others_is_none(self) -> None:
        """What stands before it would be trained with it, or has other names."""

        def wiring(m: Any, x: Tensor) -> Tensor:
            return m.classifier(m.features(x.flatten(1)))

        shared = Wired(lambda m, x: m.classifier(m.other(m.features(x.flatten(1)))[:, :5]))
        shared.other, shared.classifier = nn.Linear(5, 5), nn.Linear(5, 5)
        shared.classifier.weight = shared.other.weight
        normed = Wired(wiring, parametrizations.weight_norm(nn.Linear(5, CLASSES)))

        assert place_of_classifier(shared, shape=(3, 2, 2), num_classes=5) is None
        assert place_of_classifier(normed, shape=(3, 2, 2), num_classes=CLASSES) is None

    def test_what_shows_with_the_weights_of_the_file_alone_is_refused(self) -> None:
        model = Wired(lambda m, x: m.classifier(m.features(x.flatten(1))) * m.scale)
        model.scale = nn.Parameter(torch.ones(()))
        assert place_of_classifier(model, shape=(3, 2, 2), num_classes=CLASSES) is not None
        model.scale.data.fill_(2.0)

        with pytest.raises(ModelError, match="is not what 'classifier' makes of vectors") as caught:
            ListenedBackbone.of(spec_of(), model, "classifier", shape=(3, 2, 2))

        assert caught.value.field == "model.pretrained.train"

    def test_what_drops_something_in_training_drops_nothing_of_a_frozen_network(self) -> None:
        model = Wired(lambda m, x: m.classifier(m.drop(m.features(x.flatten(1)))))
        model.drop = nn.Dropout(0.5)

        backbone = ListenedBackbone(model.train(), "classifier", "")

        inputs = torch.rand(4, 3, 2, 2)
        assert torch.equal(backbone(inputs), backbone(inputs))
        check_independence(backbone.model, (3, 2, 2))

    def test_weights_that_make_no_numbers_say_nothing_of_the_place(self) -> None:
        model = Wired(lambda m, x: m.classifier(m.features(x.flatten(1)) / 0))

        assert place_of_classifier(model, shape=(3, 2, 2), num_classes=CLASSES) is not None

    def test_it_leaves_no_hook_behind_and_torchs_generator_alone(self) -> None:
        model = Wired(lambda m, x: m.classifier(m.features(x.flatten(1)) + torch.rand(5)))
        state = torch.get_rng_state()

        place_of_classifier(model, shape=(3, 2, 2), num_classes=CLASSES)

        assert torch.equal(torch.get_rng_state(), state)
        assert not model.classifier._forward_pre_hooks
