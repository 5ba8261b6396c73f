"""Models of timm and of a user's own functions.

timm itself cannot be had here: it needs torchvision, which is not installed. A small module of the
same name, with the same ``create_model``, stands for it in the tests that say so.
"""

import sys
from pathlib import Path

import pytest
import torch

from tan_core import models
from tan_core.engine import check_model
from tan_core.errors import ParameterError
from tan_core.spec.models import PythonModel, TimmModel

SHAPE = (3, 8, 8)
TIMM = """
from torch import nn

SEEN = []

def create_model(model_name, pretrained=False, num_classes=1000, in_chans=3, **options):
    SEEN.append({"model_name": model_name, "pretrained": pretrained, **options})
    if model_name not in ("plain", "normed", "headless"):
        raise RuntimeError(f"Unknown model ({model_name})")
    norm = nn.BatchNorm2d(4) if model_name == "normed" else nn.GroupNorm(2, 4)
    layers = [nn.Conv2d(in_chans, 4, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *([] if model_name == "headless" else [nn.Linear(4, num_classes)]))
"""
FACTORIES = """
import math
from torch import nn

def small(*, shape, num_classes, hidden=4):
    inputs = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.Linear(hidden, num_classes))

def nothing(*, shape, num_classes):
    return None

def wrong(*, shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), num_classes + 1))
"""


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``timm``, or what stands for it, and ``lab_of_a_user.zoo``; forgotten afterwards."""
    (tmp_path / "timm.py").write_text(TIMM)
    (tmp_path / "lab_of_a_user").mkdir()
    (tmp_path / "lab_of_a_user" / "zoo.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("timm", "lab_of_a_user", "lab_of_a_user.zoo"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def make(name: str, *, seed: int = 0, shape=SHAPE, **options):
    kind = TimmModel if name.startswith("timm:") else PythonModel
    return models.build(
        kind(name=name, options=options),
        shape=shape,
        num_classes=5,
        generator=torch.Generator().manual_seed(seed),
    )


ANY = ["timm:plain", "python:lab_of_a_user.zoo:small"]


@pytest.mark.usefixtures("importable")
class TestBuild:
    @pytest.mark.parametrize("name", ANY)
    def test_the_weights_follow_from_the_generator_alone(self, name: str) -> None:
        torch.manual_seed(1)
        first = make(name).state_dict()
        torch.manual_seed(2)
        again = make(name).state_dict()
        other = make(name, seed=1).state_dict()

        assert all(torch.equal(first[key], again[key]) for key in first)
        assert not all(torch.equal(first[key], other[key]) for key in first)

    @pytest.mark.parametrize("name", ANY)
    def test_building_does_not_move_the_global_generator(self, name: str) -> None:
        before = torch.get_rng_state()

        make(name)

        assert torch.equal(torch.get_rng_state(), before)

    def test_options_reach_the_factory(self) -> None:
        assert make("python:lab_of_a_user.zoo:small", hidden=7)[1].out_features == 7

    def test_timm_is_asked_for_an_architecture_without_weights(self) -> None:
        make("timm:plain", drop_rate=0.0)

        seen = sys.modules["timm"].SEEN[-1]  # type: ignore[attr-defined]
        assert seen == {"model_name": "plain", "pretrained": False, "drop_rate": 0.0}

    def test_batch_norm_is_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match="'1' is BatchNorm2d: it mixes the examples"):
            check_model(make("timm:normed"))

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("timm:unheard_of", r"Unknown model \(unheard_of\)"),
            ("timm:headless", r"must give \[2, 5\] logits for 2 examples, got \[2, 4\]"),
            ("python:lab_of_a_user.zoo:nothing", "made a NoneType, not an nn.Module"),
            (
                "python:lab_of_a_user.zoo:wrong",
                r"must give \[2, 5\] logits for 2 examples, got \[2, 6\]",
            ),
            ("python:lab_of_a_user.zoo:absent", "cannot be found: .*no attribute 'absent'"),
            (
                "python:lab_of_a_user.absent:small",
                "cannot be found: No module named 'lab_of_a_user.absent'",
            ),
        ],
    )
    def test_what_cannot_be_used_is_refused(self, name: str, message: str) -> None:
        with pytest.raises(ParameterError, match=message) as caught:
            make(name)

        assert name in str(caught.value)
        assert str(caught.value.field).startswith("model")

    def test_an_option_that_the_factory_does_not_know_is_named(self) -> None:
        with pytest.raises(ParameterError, match=r"unexpected keyword argument 'depth'"):
            make("python:lab_of_a_user.zoo:small", depth=3)

    def test_timm_reads_images_only(self) -> None:
        with pytest.raises(ParameterError, match="reads images of shape"):
            make("timm:plain", shape=(30,))


def test_without_timm_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)

    with pytest.raises(ParameterError, match="install timm and torchvision") as caught:
        make("timm:resnet18")

    assert caught.value.field == "model.name"
