import pytest
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
