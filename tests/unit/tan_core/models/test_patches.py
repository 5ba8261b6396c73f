"""Responses to patches of random images: the formula, and what an extractor promises."""

import pytest
import torch
from torch.nn import functional

from tan_core.models import build, extractor_of
from tan_core.models.extractor import split
from tan_core.models.patches import PATCHES, PatchResponses, WithPatches, _dictionary
from tan_core.models.random_images import random_images
from tan_core.models.scattering import Scattering
from tan_core.spec.models import ScatterCnnModel, ScatterLinearModel

Spec = type[ScatterLinearModel] | type[ScatterCnnModel]
MODELS = pytest.mark.parametrize("spec", [ScatterLinearModel, ScatterCnnModel])
GOLDEN = {
    1: [123.58605759634567, 1.4384311850705003],
    3: [138.2896401946134, 1.3322984299751008],
}
"""Of a random image of eight pixels a side: the sum of all responses, and the greatest."""


def images(count: int, channels: int, height: int = 8, width: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, height, width, generator=generator, dtype=torch.float64)


class TestResponses:
    @pytest.mark.slow
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize(("height", "width"), [(8, 12), (28, 17)])
    def test_they_are_those_of_each_patch_averaged_around_each_region(
        self, channels: int, height: int, width: int
    ) -> None:
        records, dictionary = images(2, channels, height, width), _dictionary(channels)
        patches = functional.unfold(records, 6).transpose(1, 2)
        patches = patches - patches.mean(2, keepdim=True)
        patches = patches / (patches.square().mean(2, keepdim=True) + 1.5e-4).sqrt()
        like = patches @ dictionary.filters.flatten(1).T - dictionary.offsets
        like = torch.cat([(like - 1).relu(), (-like - 1).relu()], dim=2)
        like = like.view(2, height - 5, width - 5, 2 * PATCHES)

        found = PatchResponses()(records)

        rows, columns = height // 4, width // 4
        assert found.shape == (2, 2 * PATCHES, rows, columns)
        for row in range(rows):
            for column in range(columns):
                near = like[:, window(row, rows, height - 5)][
                    :, :, window(column, columns, width - 5)
                ]
                torch.testing.assert_close(found[:, :, row, column], near.mean((1, 2)))

    def test_neither_brightness_nor_contrast_counts(self) -> None:
        records = images(3, 3)

        torch.testing.assert_close(
            PatchResponses()(0.5 * records + 0.2), PatchResponses()(records), rtol=0.02, atol=0.01
        )

    def test_an_image_of_one_colour_answers_finitely(self) -> None:
        found = PatchResponses()(torch.full((1, 3, 8, 8), 0.3))

        assert found.isfinite().all()

    def test_a_record_is_extracted_from_itself_alone(self) -> None:
        records = images(4, 3)

        apart = [PatchResponses()(each[None]) for each in records]

        torch.testing.assert_close(PatchResponses()(records), torch.cat(apart))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_they_have_the_precision_of_the_images(self, dtype: torch.dtype) -> None:
        found = PatchResponses()(images(2, 3).to(dtype))

        assert found.dtype == dtype
        torch.testing.assert_close(
            found.double(), PatchResponses()(images(2, 3)), rtol=1e-4, atol=1e-4
        )

    @pytest.mark.parametrize("channels", [1, 3])
    def test_they_are_the_same_on_every_machine(self, channels: int) -> None:
        found = PatchResponses()(torch.from_numpy(random_images(1, channels, 8, 8)))

        assert [found.sum().item(), found.max().item()] == pytest.approx(GOLDEN[channels], rel=1e-6)


def window(region: int, regions: int, places: int) -> slice:
    """The places that two regions to either side span."""
    first, end = max(region - 2, 0), min(region + 3, regions)
    return slice(first * places // regions, -(-end * places // regions))


class TestDictionary:
    def test_whitened_patches_differ_by_one_in_every_direction(self) -> None:
        dictionary = _dictionary(3)
        cut = functional.unfold(torch.from_numpy(random_images(256, 3, 32, 32)), 6, stride=3)
        patches = cut.transpose(1, 2).flatten(0, 1)
        patches = patches - patches.mean(1, keepdim=True)
        patches = patches / (patches.square().mean(1, keepdim=True) + 1.5e-4).sqrt()

        deviations = (patches @ dictionary.filters.flatten(1).T).std(0)

        # The floor under the variances takes some off.
        assert 0.5 < deviations.min() < deviations.max() < 1.5

    def test_a_mean_is_never_heard(self) -> None:
        assert _dictionary(3).filters.flatten(1).mean(1).abs().max() < 1e-12


class TestBesideCoefficients:
    def test_they_follow_the_coefficients(self) -> None:
        records, scattering = images(2, 3), Scattering(opponent_colours=True)
        extractor = extractor_of(ScatterLinearModel(patches=True))
        assert isinstance(extractor, WithPatches)

        found = extractor(records)

        coefficients, responses = found.split([243, 162], dim=1)
        assert torch.equal(coefficients, scattering(records))
        assert torch.equal(responses, PatchResponses()(records))
        assert extractor.fingerprint == f"{scattering.fingerprint} {PatchResponses().fingerprint}"
        assert extractor.records_at_once == scattering.records_at_once

    def test_mirrored_images_share_them_where_features_are_flip_invariant(self) -> None:
        records = images(3, 3)
        extractor = extractor_of(ScatterLinearModel(patches=True, flip_invariant=True))
        assert extractor is not None

        assert torch.equal(extractor(records), extractor(records.flip(-1)))
        assert extractor.fingerprint.endswith("patches-1 flip-invariant")

    @MODELS
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("groups", [1, 3, 9, 27, 81])
    def test_models_read_them(self, spec: Spec, channels: int, groups: int) -> None:
        model, plain = (
            build(
                spec.model_validate({"patches": patches, "groups": groups}),
                shape=[channels, 8, 12],
                num_classes=10,
                generator=torch.Generator().manual_seed(2),
            )
            for patches in (True, False)
        )

        assert model(images(2, channels).float()).shape == (2, 10)
        more, fewer = (
            sum(p.numel() for p in split(each)[1].parameters()) for each in (model, plain)
        )
        assert more > fewer
