"""Images of a dataset as the images that a network was trained on."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core.engine import check_model
from tan_core.engine.independence import check_independence
from tan_core.engine.inputs import as_floats
from tan_core.errors import ParameterError, PretrainedError
from tan_core.models import build
from tan_core.models.checkpoint_file import Checkpoint
from tan_core.models.prepared_input import PreparedInput, with_input
from tan_core.spec.models import ModelInput, PythonModel
from tan_core.testing.conformance import ModelConformance

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SHAPE, CLASSES = (3, 8, 8), 4
ZOO = """
from torch import nn

SEEN = []

def small(*, shape, num_classes):
    SEEN.append(tuple(shape))
    convolution = nn.Conv2d(shape[0], 4, 3, stride=2)
    return nn.Sequential(
        convolution, nn.BatchNorm2d(4), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, num_classes)
    )
"""


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab_of_inputs.py").write_text(ZOO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lab_of_inputs", raising=False)


def prepared(**given: Any) -> PreparedInput:
    return PreparedInput(ModelInput.model_validate(given))


def pixels(channels: int = 3, side: int = 8, num: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    size = (num, channels, side, side)
    return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)


def spec_of(train: str | None = None, **more: Any) -> PythonModel:
    pretrained = {"path": "a.pt", "data": "public", "train": train, "sha256": "ab" * 32}
    given = {"name": "python:lab_of_inputs:small", "replace_batch_norm": "frozen", **more}
    return PythonModel.model_validate(given | ({"pretrained": pretrained} if train else {}))


def make(spec: PythonModel, shape: tuple[int, ...] = SHAPE, **more: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    return build(spec, shape=shape, num_classes=CLASSES, generator=generator, **more)


class TestLayer:
    def test_bytes_become_what_the_network_was_trained_on(self) -> None:
        images = pixels()

        found = prepared(mean=MEAN, std=STD)(as_floats(images, torch.float32))

        mean, std = (torch.tensor(each).reshape(3, 1, 1) for each in (MEAN, STD))
        torch.testing.assert_close(found, (images / 255 - mean) / std, rtol=0, atol=2e-6)

    def test_images_of_one_channel_become_as_many_as_there_are_means(self) -> None:
        images = pixels(channels=1)

        found = prepared(mean=MEAN, std=STD)(as_floats(images, torch.float32))

        coloured = prepared(mean=MEAN, std=STD)(
            as_floats(images, torch.float32).expand(-1, 3, -1, -1)
        )
        assert torch.equal(found, coloured)

    @pytest.mark.parametrize("size", [5, 20])
    def test_images_are_scaled_and_pixels_stay_pixels(self, size: int) -> None:
        images = as_floats(255 * (pixels() > 127).byte(), torch.float32)

        found = prepared(size=size)(images)

        scaled = functional.interpolate(images, (size, size), mode="bicubic", antialias=True)
        assert scaled.abs().max() > 1  # a cubic goes beyond edges
        assert torch.equal(found, scaled.clamp(-1, 1))

    def test_images_of_that_size_stay_as_they_are(self) -> None:
        images = as_floats(pixels(), torch.float32)

        assert torch.equal(prepared(size=8)(images), images)

    def test_it_has_nothing_to_train_or_to_keep(self) -> None:
        layer = prepared(size=4, mean=MEAN, std=STD)

        assert not [*layer.parameters()]
        assert not layer.state_dict()
        assert repr(layer) == "PreparedInput(size=4, channels=3)"

    def test_without_it_a_network_stands_alone(self) -> None:
        network = nn.Linear(1, 1)

        assert with_input(None, network) is network


class TestModel:
    def test_the_function_is_told_what_its_network_reads(self) -> None:
        make(spec_of(input={"size": 16, "mean": MEAN, "std": STD}), shape=(1, 8, 8))

        import lab_of_inputs  # type: ignore[import-not-found]

        assert lab_of_inputs.SEEN == [(3, 16, 16)]

    @pytest.mark.parametrize("train", ["all", "classifier"])
    @pytest.mark.parametrize("prefix", ["", "module.", "network."])
    def test_a_file_of_the_network_alone_fits(self, prefix: str, train: str) -> None:
        network = make(spec_of(), shape=(3, 16, 16))
        network[1].running_mean.fill_(0.25)
        weights = {prefix + name: value for name, value in network.state_dict().items()}

        model = make(
            spec_of(train, input={"size": 16}), checkpoint=Checkpoint(path="a.pt", weights=weights)
        )

        state = model.state_dict()
        assert all(name.startswith("network.") for name in state)
        assert torch.equal(state["network.1.running_mean"], torch.full((4,), 0.25))
        assert torch.equal(state["network.0.weight"], network[0].weight)
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        own = {"network.5.weight", "network.5.bias"}
        assert trained == own if train == "classifier" else trained > own

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"1.running_var": None}, r"it lacks 1\.running_var;"),
            ({"5.weight": None}, r"it lacks 5\.weight$"),
            ({"fc.weight": torch.zeros(1)}, r"the model has no fc\.weight$"),
            ({"0.bias": torch.zeros(5)}, r"a\.pt: 0\.bias has shape"),
        ],
    )
    def test_what_is_wrong_in_a_file_has_the_name_that_the_network_gives_it(
        self, change: dict[str, torch.Tensor | None], message: str
    ) -> None:
        given = make(spec_of(), shape=(3, 16, 16)).state_dict() | change
        weights = {name: value for name, value in given.items() if value is not None}

        with pytest.raises(PretrainedError, match=message):
            make(
                spec_of("all", input={"size": 16}),
                checkpoint=Checkpoint(path="a.pt", weights=weights),
            )

    def test_no_example_reads_another_one(self) -> None:
        model = make(spec_of(input={"size": 16, "mean": MEAN, "std": STD}))

        check_model(model)
        check_independence(model, SHAPE)

    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            ((12,), r"is of images \[C, H, W\], got records of shape \[12\]"),
            ((2, 8, 8), "got images of 2"),
        ],
    )
    def test_what_it_cannot_read_is_refused(self, shape: tuple[int, ...], message: str) -> None:
        with pytest.raises(ParameterError, match=message) as caught:
            make(spec_of(input={"mean": MEAN, "std": STD}), shape=shape)

        assert caught.value.field == "model.input"


class TestEach(ModelConformance):
    """Norms and sums behind it are those of one backward pass for each example."""

    shape, num_classes = SHAPE, CLASSES

    def make_model(self) -> nn.Module:
        return make(spec_of(input={"size": 12, "mean": MEAN, "std": STD}))
