"""Views: crops by reflection, flips, in the order that clipping expects."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from tan_core.engine.augment import Augmentation, Views
from tan_core.errors import ParameterError


def images(count: int = 3, channels: int = 2, height: int = 6, width: int = 5) -> torch.Tensor:
    size = count * channels * height * width
    return (
        torch.arange(size, dtype=torch.int64).to(torch.uint8).view(count, channels, height, width)
    )


def augmentation(**changes) -> Augmentation:
    asked = {
        "shape": (1, 28, 28),
        "multiplicity": 1,
        "crop_padding": "auto",
        "horizontal_flip": False,
        "color_jitter": 0.0,
        "dtype": torch.uint8,
    }
    return Augmentation.of(**asked | changes)


class TestAsked:
    def test_one_view_without_crop_or_flip_is_the_example_itself(self) -> None:
        assert augmentation().is_identity

    def test_auto_padding_is_an_eighth_of_the_side_when_there_are_views(self) -> None:
        assert augmentation(multiplicity=4).padding == 3
        assert augmentation(multiplicity=1, horizontal_flip=True).padding == 0

    @pytest.mark.parametrize("changes", [{"multiplicity": 2}, {"color_jitter": 0.1}])
    def test_views_of_a_table_are_refused(self, changes) -> None:
        with pytest.raises(ParameterError, match="views, crops and flips are of images"):
            augmentation(shape=(7,), **changes)

    def test_jitter_of_images_in_floats_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="color_jitter is of images in uint8") as error:
            augmentation(color_jitter=0.1, dtype=torch.float32)
        assert error.value.field == "color_jitter"

    def test_padding_as_wide_as_the_image_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="crop_padding must be below") as error:
            augmentation(crop_padding=28)
        assert error.value.field == "crop_padding"


class TestViews:
    @pytest.mark.parametrize("row", [-2, 0, 2])
    @pytest.mark.parametrize("column", [-2, 1])
    @pytest.mark.parametrize("flip", [False, True])
    def test_a_view_is_the_crop_of_the_reflect_padded_image(self, row, column, flip) -> None:
        views = Views(
            rows=torch.full((3, 1), row),
            columns=torch.full((3, 1), column),
            flips=torch.full((3, 1), flip),
        )
        padded = np.pad(images().numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
        expected = padded[:, :, 2 + row : 8 + row, 2 + column : 7 + column]

        got = views.of(images()).numpy()

        assert np.array_equal(got, expected[..., ::-1] if flip else expected)

    def test_the_views_of_an_example_stand_together(self) -> None:
        drawn = Augmentation(views=3, padding=0).draw(2, torch.Generator().manual_seed(0))

        got = drawn.of(images(2))

        assert torch.equal(got, images(2).repeat_interleave(3, dim=0))

    def test_a_slice_of_the_draw_gives_the_same_views_as_the_whole(self) -> None:
        drawn = Augmentation(views=2, padding=2, flip=True).draw(
            6, torch.Generator().manual_seed(0)
        )

        whole = drawn.of(images(6)).view(6, 2, 2, 6, 5)

        assert torch.equal(drawn[1::2].of(images(6)[1::2]).view(3, 2, 2, 6, 5), whole[1::2])

    def test_every_offset_and_both_flips_occur(self) -> None:
        drawn = Augmentation(views=8, padding=2, flip=True).draw(
            50, torch.Generator().manual_seed(0)
        )

        assert drawn.rows.unique().tolist() == drawn.columns.unique().tolist() == [-2, -1, 0, 1, 2]
        assert drawn.flips.unique().tolist() == [False, True]

    def test_no_examples_give_no_views(self) -> None:
        drawn = Augmentation(views=2, padding=1).draw(0, torch.Generator())

        assert drawn.of(images(0)).shape == (0, 2, 6, 5)


def photo(seed: int = 0, height: int = 9, width: int = 7) -> torch.Tensor:
    """One random image in colours, uint8 [1, 3, H, W]."""
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.integers(0, 256, (1, 3, height, width), dtype=np.uint8))


def jittered(images: torch.Tensor, *factors: float) -> np.ndarray:
    """The first image with one (brightness, contrast, saturation), as [H, W, C]."""
    still = torch.zeros((len(images), 1), dtype=torch.int64)
    drawn = Views(rows=still, columns=still, flips=still.bool(), factors=torch.tensor([[factors]]))
    return drawn.of(images)[0].permute(1, 2, 0).numpy()


class TestJitter:
    @pytest.mark.parametrize("factor", [0.0, 0.3, 0.9, 1.4, 2.0])
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_each_factor_does_what_pillow_does(self, at: int, factor: float) -> None:
        """Pillow cuts where we round, and takes the mean grey to be a whole number."""
        enhance = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[at]
        pixels = photo()[0].permute(1, 2, 0).numpy()
        expected = np.asarray(enhance(Image.fromarray(pixels)).enhance(factor))

        found = jittered(photo(), *(factor if place == at else 1.0 for place in range(3)))

        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 2

    @given(seed=st.integers(0, 99), factors=st.tuples(*3 * [st.floats(0, 2, width=32)]))
    def test_all_three_follow_the_formula_pixel_by_pixel(self, seed: int, factors) -> None:
        brightness, contrast, saturation = factors
        x = np.clip(photo(seed)[0].double().numpy() * brightness, 0, 255)
        mean = np.mean([0.299 * r + 0.587 * g + 0.114 * b for r, g, b in x.reshape(3, -1).T])
        x = np.clip(mean + contrast * (x - mean), 0, 255)
        grey = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
        x = np.clip(grey + saturation * (x - grey), 0, 255)

        found = jittered(photo(seed), *factors)

        # Half a level is the rounding; the rest is float32.
        assert np.abs(found - x.transpose(1, 2, 0)).max() <= 0.501

    def test_factors_of_one_leave_every_byte(self) -> None:
        assert np.array_equal(jittered(photo(), 1.0, 1.0, 1.0), photo()[0].permute(1, 2, 0))

    @pytest.mark.parametrize("channels", [1, 2])
    def test_saturation_leaves_one_grey_channel_alone(self, channels: int) -> None:
        image = photo()[:, :1].expand(-1, channels, -1, -1)

        assert np.array_equal(jittered(image, 1.0, 1.0, 0.0), image[0].permute(1, 2, 0))

    def test_factors_fill_the_whole_interval_and_nothing_else(self) -> None:
        drawn = Augmentation(views=8, jitter=0.4).draw(500, torch.Generator().manual_seed(0))

        for factor in drawn.factors.unbind(-1):
            assert 0.6 <= factor.min() < 0.61
            assert 1.39 < factor.max() <= 1.4
            assert float(factor.mean()) == pytest.approx(1, abs=0.02)

    def test_jitter_leaves_the_crops_and_flips_of_the_step_as_they_were(self) -> None:
        still = Augmentation(views=2, padding=2, flip=True)
        moved = Augmentation(views=2, padding=2, flip=True, jitter=0.5)

        plain, colourful = (a.draw(9, torch.Generator().manual_seed(0)) for a in (still, moved))

        assert plain.factors is None
        for name in ("rows", "columns", "flips"):
            assert torch.equal(getattr(plain, name), getattr(colourful, name))

    @given(seed=st.integers(0, 99), start=st.integers(0, 5), stride=st.integers(1, 4))
    def test_an_example_has_the_same_views_in_any_company(self, seed, start, stride) -> None:
        """Which ranks and which microbatches an example meets must not show in its bytes."""
        batch = torch.cat([photo(seed + i) for i in range(6)])
        drawn = Augmentation(views=2, padding=2, flip=True, jitter=0.9).draw(
            6, torch.Generator().manual_seed(seed)
        )
        share = slice(start, None, stride)

        whole = drawn.of(batch).view(6, 2, 3, 9, 7)

        assert torch.equal(drawn[share].of(batch[share]).view(-1, 2, 3, 9, 7), whole[share])

    def test_no_examples_give_no_views(self) -> None:
        drawn = Augmentation(views=2, jitter=0.5).draw(0, torch.Generator())

        assert drawn.of(photo()[:0]).shape == (0, 3, 9, 7)
