"""Whitened features: the formula, and what an extractor promises."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.nn import functional

from tan_core.errors import ParameterError
from tan_core.models import build, extractor_of, whitening
from tan_core.models.extractor import Extractor
from tan_core.models.patches import WithPatches
from tan_core.models.random_images import random_images
from tan_core.models.scattering import Scattering
from tan_core.models.whitening import Whitened
from tan_core.spec.models import ScatterCnnModel, ScatterLinearModel, too_large_to_whiten

FEW = 64
GOLDEN = [
    [0.7622343501528237, 0.7523028200187709, 0.7520897712865386],
    [0.20521787338335898, 0.22336530180413933, 0.1779863642051719],
]
"""Means of two random images' channels."""


@pytest.fixture(autouse=True)
def few_random_images(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fewer than there are coefficients, as in use."""
    monkeypatch.setattr(whitening, "_COUNT", FEW)
    whitening._moments.cache_clear()
    yield
    whitening._moments.cache_clear()


def images(count: int, channels: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, 8, 8, generator=generator, dtype=torch.float64)


def extracted(records: torch.Tensor) -> torch.Tensor:
    return Whitened(Scattering(opponent_colours=True))(records)


class TestWhitening:
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("has_patches", [False, True])
    def test_it_is_the_power_of_the_whole_covariance(
        self, channels: int, has_patches: bool
    ) -> None:
        extractor: Extractor = Scattering(opponent_colours=True)
        extractor = WithPatches(extractor) if has_patches else extractor

        def features(records: torch.Tensor) -> torch.Tensor:
            return functional.group_norm(extractor(records), 27).flatten(1)

        seen = features(torch.from_numpy(random_images(FEW, channels, 8, 8)))
        centred = seen - seen.mean(0)
        covariance = centred.T @ centred
        variances, directions = torch.linalg.eigh(covariance / covariance.trace() / 1e-5)
        matrix = (directions * (variances.clamp(min=0) + 1) ** -0.25) @ directions.T
        records = images(5, channels)

        found = Whitened(extractor)(records)

        assert found.shape == (5, 81 * channels + 162 * has_patches, 2, 2)
        expected = (features(records) - seen.mean(0)) @ matrix
        torch.testing.assert_close(found.flatten(1), expected, rtol=1e-8, atol=1e-8)

    def test_variances_come_closer(self) -> None:
        fresh = torch.from_numpy(random_images(2 * FEW, 1, 8, 8))[FEW:]

        def share_of_first(features: torch.Tensor) -> float:
            variances = torch.linalg.eigvalsh(features.flatten(1).T.cov())
            return float(variances[-1] / variances.sum())

        before = functional.group_norm(Scattering()(fresh), 27)
        assert share_of_first(extracted(fresh)) < 0.75 * share_of_first(before)

    def test_a_record_is_extracted_from_itself_alone(self) -> None:
        records = images(4, 1)

        together, apart = extracted(records), [extracted(each[None]) for each in records]

        torch.testing.assert_close(together, torch.cat(apart), rtol=1e-9, atol=1e-9)

    def test_equal_extractors_share_their_moments_and_others_do_not(self) -> None:
        records = images(2, 1)
        for extractor in (Scattering(), Scattering(), WithPatches(Scattering())):
            Whitened(extractor)(records)

        assert whitening._moments.cache_info().misses == 2

    def test_features_have_another_name(self) -> None:
        scattering = Scattering(opponent_colours=True)

        assert Whitened(scattering).fingerprint == f"{scattering.fingerprint} whitened-1"


@pytest.mark.parametrize("spec", [ScatterLinearModel, ScatterCnnModel])
@pytest.mark.parametrize("has_patches", [False, True])
def test_a_model_begins_with_it_and_normalises_no_more(
    spec: type[ScatterLinearModel | ScatterCnnModel], has_patches: bool
) -> None:
    whitened = spec(normalization="whitened", patches=has_patches)

    model = build(whitened, shape=[3, 8, 8], num_classes=10, generator=torch.Generator())

    found = extractor_of(whitened)
    assert found is not None
    assert isinstance(model[0], Whitened)
    assert model[0].fingerprint == found.fingerprint
    assert not any(isinstance(layer, torch.nn.GroupNorm) for layer in model)
    assert model(images(2, 3).float()).shape == (2, 10)


def test_mirrored_images_share_whitened_responses() -> None:
    """Each image and its mirror image are whitened, and then averaged."""
    spec = ScatterLinearModel(normalization="whitened", patches=True, flip_invariant=True)
    extractor, records = extractor_of(spec), images(3, 3)
    assert extractor is not None

    assert torch.equal(extractor(records), extractor(records.flip(-1)))
    assert extractor.fingerprint.endswith("patches-1 whitened-1 flip-invariant")


def test_images_whose_moments_would_fill_the_memory_are_refused() -> None:
    whitened = ScatterLinearModel(normalization="whitened")

    with pytest.raises(ParameterError, match=r"at most 65,536 .* 3x224x224 .* 762,048") as caught:
        build(whitened, shape=[3, 224, 224], num_classes=10, generator=torch.Generator())

    assert caught.value.field == "model.normalization"


def test_responses_count_among_them() -> None:
    """48x48 pixels of colours have 34,992 coefficients and 58,320 features, 56x56 have 79,380."""
    assert too_large_to_whiten([3, 56, 56], has_patches=False) is None
    assert too_large_to_whiten([3, 48, 48], has_patches=True) is None
    assert "79,380" in (too_large_to_whiten([3, 56, 56], has_patches=True) or "")


def test_they_are_refused_before_any_feature_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers extract before they build: the extractor itself refuses, and makes no random image first."""

    def made(*_: int) -> None:
        raise AssertionError("random images were made")

    monkeypatch.setattr(whitening, "random_images", made)
    extractor = extractor_of(ScatterLinearModel(normalization="whitened"))
    assert extractor is not None

    with pytest.raises(ParameterError, match="at most 65,536"):
        extractor(torch.zeros(1, 3, 96, 96))


class TestRandomImages:
    def test_they_are_the_same_for_ever(self) -> None:
        found = random_images(2, 3, 8, 9)

        assert found.shape == (2, 3, 8, 9)
        assert found.min() >= 0
        assert found.max() <= 1
        np.testing.assert_allclose(found.mean((2, 3)), GOLDEN, atol=1e-9)

    def test_images_differ_and_channels_are_nearly_alike(self) -> None:
        found = random_images(8, 3, 16, 16).reshape(8, 3, -1)

        channels = np.mean([np.corrcoef(image)[0, 1] for image in found])
        images = np.mean(np.abs(np.corrcoef(found[:, 0])[np.triu_indices(8, 1)]))
        assert channels > 0.6
        assert images < 0.4
