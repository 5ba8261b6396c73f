from types import SimpleNamespace

import pytest
import ray
import torch
from torch import nn

from tan_core.spec.train import MICROBATCH_SIZE, Precision, TrainerConfig
from worker import at_once


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What a GPU would have been asked; none is here."""
    asked: list[dict] = []

    def views_at_once(model: nn.Module, shape: tuple[int, ...], **settings) -> int:
        asked.append({"shape": tuple(shape), **settings})
        if settings["views"] == 8:
            raise torch.OutOfMemoryError
        return 4096

    monkeypatch.setattr(at_once, "views_at_once", views_at_once)
    return asked


def _size(asked: int, device: str, **config) -> int:
    trainer = TrainerConfig.model_validate(config)
    return at_once.microbatch_size(asked, nn.Linear(3, 2), (3,), trainer, torch.device(device))


def test_a_processor_takes_what_was_asked_for(probes: list[dict]) -> None:
    assert [_size(asked, "cpu") for asked in (1, MICROBATCH_SIZE, 5000)] == [1, 256, 5000]
    assert probes == []


def test_a_gpu_takes_as_much_as_it_holds_unless_somebody_chose(probes: list[dict]) -> None:
    assert _size(128, "cuda") == 128
    assert probes == []
    config = {"augmentation_multiplicity": 16, "precision": "bfloat16"}
    assert _size(MICROBATCH_SIZE, "cuda", **config) == 4096
    assert probes == [
        {
            "shape": (3,),
            "views": 16,
            "precision": Precision.BFLOAT16,
            "share": 1.0,
            "device": torch.device("cuda"),
        }
    ]


def test_what_cannot_be_tried_is_left_to_the_trainer(probes: list[dict]) -> None:
    assert _size(MICROBATCH_SIZE, "cuda", augmentation_multiplicity=8) == MICROBATCH_SIZE
    assert len(probes) == 1


def _lends(monkeypatch: pytest.MonkeyPatch, resources: dict[str, float] | None) -> None:
    def get_assigned_resources() -> dict[str, float]:
        assert resources is not None, "only of workers"
        return resources

    context = SimpleNamespace(get_assigned_resources=get_assigned_resources)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)


@pytest.mark.parametrize(
    ("lent", "device", "share"),
    [
        ({"CPU": 1.0, "GPU": 0.25}, "cuda", 0.25),
        ({"GPU": 2.0}, "cuda", 1.0),
        (None, "cuda", 1.0),
        ({"CPU": 1.0}, "cpu", None),
    ],
    ids=["a quarter", "several", "a driver", "none"],
)
def test_a_trial_computes_on_what_ray_lent_it(
    lent, device: str, share: float | None, probes: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    _lends(monkeypatch, lent)
    assert at_once.trial_device() == torch.device(device)
    _size(MICROBATCH_SIZE, device)
    assert [each["share"] for each in probes] == ([] if share is None else [share])


def test_without_a_gpu_a_trial_computes_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert at_once.trial_device() == torch.device("cpu")
