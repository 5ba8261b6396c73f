"""Features that an image and its mirror image share."""

import pytest
import torch

from tan_core.models import build, extractor_of
from tan_core.models.extractor import Extractor, split
from tan_core.models.flip_invariant import FlipInvariant
from tan_core.models.scattering import Scattering
from tan_core.spec.models import ScatterCnnModel, ScatterLinearModel

Spec = type[ScatterLinearModel] | type[ScatterCnnModel]
MODELS = pytest.mark.parametrize("spec", [ScatterLinearModel, ScatterCnnModel])


def images(count: int, channels: int = 3) -> torch.Tensor:
    return torch.rand(count, channels, 8, 12, generator=torch.Generator().manual_seed(1))


def extracted(spec: ScatterLinearModel | ScatterCnnModel, records: torch.Tensor) -> torch.Tensor:
    extractor = extractor_of(spec)
    assert extractor is not None
    found = extractor(records)
    assert isinstance(found, torch.Tensor)
    return found


def test_mirrored_images_have_the_same_features_bit_by_bit() -> None:
    records, spec = images(4), ScatterLinearModel(flip_invariant=True)

    assert torch.equal(extracted(spec, records), extracted(spec, records.flip(-1)))
    upside_down = extracted(spec, records.flip(-2))
    assert not torch.allclose(extracted(spec, records), upside_down, atol=1e-3)


def test_they_are_the_mean_of_both() -> None:
    records, plain = images(4), ScatterLinearModel()
    both = [extracted(plain, records), extracted(plain, records.flip(-1))]

    found = extracted(ScatterLinearModel(flip_invariant=True), records)

    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.stack(both).mean(0))
    assert not torch.allclose(*both, atol=1e-3)


def test_a_record_is_extracted_from_itself_alone() -> None:
    records, spec = images(4), ScatterLinearModel(flip_invariant=True)

    apart = [extracted(spec, each[None]) for each in records]

    torch.testing.assert_close(extracted(spec, records), torch.cat(apart))


@pytest.mark.parametrize("inner", [Scattering(), Scattering(opponent_colours=True)])
def test_features_have_another_name_and_come_in_the_same_blocks(inner: Extractor) -> None:
    found = FlipInvariant(inner)

    assert found.fingerprint == f"{inner.fingerprint} flip-invariant"
    assert found.records_at_once == inner.records_at_once


@MODELS
def test_a_model_cannot_tell_an_image_from_its_mirror_image(spec: Spec) -> None:
    records = images(3)
    model, plain = (
        build(each, shape=[3, 8, 12], num_classes=10, generator=torch.Generator().manual_seed(2))
        for each in (spec(flip_invariant=True), spec())
    )

    assert torch.equal(model(records), model(records.flip(-1)))
    assert not torch.allclose(plain(records), plain(records.flip(-1)), atol=1e-4)
    extractor, head = split(model)
    assert isinstance(extractor, FlipInvariant)
    assert head.state_dict().keys() == split(plain)[1].state_dict().keys()
