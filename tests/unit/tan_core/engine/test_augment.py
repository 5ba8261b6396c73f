"""Views: crops by reflection, flips, in the order that clipping expects."""

import numpy as np
import pytest
import torch

from tan_core.engine.augment import Augmentation, Views
from tan_core.errors import ParameterError


def images(count: int = 3, channels: int = 2, height: int = 6, width: int = 5) -> torch.Tensor:
    size = count * channels * height * width
    return (
        torch.arange(size, dtype=torch.int64).to(torch.uint8).view(count, channels, height, width)
    )


def augmentation(**changes) -> Augmentation:
    asked = {"multiplicity": 1, "crop_padding": "auto", "horizontal_flip": False} | changes
    return Augmentation.of((1, 28, 28), **asked)


class TestAsked:
    def test_one_view_without_crop_or_flip_is_the_example_itself(self) -> None:
        assert augmentation().is_identity

    def test_auto_padding_is_an_eighth_of_the_side_when_there_are_views(self) -> None:
        assert augmentation(multiplicity=4).padding == 3
        assert augmentation(multiplicity=1, horizontal_flip=True).padding == 0

    def test_views_of_a_table_are_refused(self) -> None:
        with pytest.raises(ParameterError, match="views, crops and flips are of images"):
            Augmentation.of((7,), multiplicity=2, crop_padding="auto", horizontal_flip=False)

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
