"""The scattering transform: against another implementation's numbers, and by its properties."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tan_core.errors import ParameterError
from tan_core.models.scattering import Scattering, filter_bank

GOLDEN = Path(__file__).parents[3] / "golden" / "scattering.npz"
SHAPES = st.sampled_from([(8, 8), (9, 14), (15, 11), (20, 16)])


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestGolden:
    """Kymatio 0.4 dev, ``ScatteringTorch2D(J, shape, L=8)`` on images that numpy's Philox draws.

    ``tests/golden/make_scattering.py`` wrote the file. Kymatio takes 3.1415 for pi in the height of
    its Gaussians and computes in float32, so a coefficient of order m is off by 3e-5 (m + 1).
    """

    @pytest.mark.parametrize("case", ["2-28-28", "2-9-14", "3-16-24"])
    def test_the_numbers_are_those_of_kymatio(self, case: str) -> None:
        scales, height, width = map(int, case.split("-"))
        images = np.random.Generator(np.random.Philox(0)).random((2, 2, height, width))
        with np.load(GOLDEN) as stored:
            expected = stored[case]

        found = Scattering(scales)(torch.from_numpy(images)).numpy()

        np.testing.assert_allclose(found, expected, rtol=1.2e-4, atol=1e-6)


class TestShape:
    @settings(max_examples=20)
    @given(shape=SHAPES, channels=st.integers(1, 3))
    def test_eighty_one_paths_of_a_quarter_of_the_sides(
        self, shape: tuple[int, int], channels: int
    ) -> None:
        out = Scattering()(noise(2, channels, *shape))

        assert out.shape == (2, 81 * channels, shape[0] // 4, shape[1] // 4)

    @pytest.mark.parametrize(("scales", "angles"), [(1, 8), (2, 5), (3, 4)])
    def test_the_paths_are_counted(self, scales: int, angles: int) -> None:
        scattering = Scattering(scales, angles)

        assert scattering(noise(1, 1, 32, 32)).shape[1] == scattering.paths

    @pytest.mark.parametrize("shape", [(1, 1, 4, 8), (1, 8, 8)])
    def test_what_is_no_image_or_too_small_is_refused(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ParameterError, match=r"sides above 4, got \[1") as caught:
            Scattering()(torch.zeros(shape))

        assert caught.value.field == "images"

    def test_it_holds_no_state_and_computes_in_the_precision_of_its_input(self) -> None:
        scattering = Scattering()

        assert scattering.state_dict() == {}
        single, double = (
            scattering(noise(2, 1, 28, 28).to(t)) for t in (torch.float, torch.double)
        )
        assert (single.dtype, double.dtype) == (torch.float, torch.double)
        torch.testing.assert_close(single.double(), double, atol=1e-6, rtol=1e-5)


class TestProperties:
    @settings(max_examples=20)
    @given(seed=st.integers(0, 1000), shape=SHAPES)
    def test_an_example_depends_on_itself_alone(self, seed: int, shape: tuple[int, int]) -> None:
        images = noise(3, 2, *shape, seed=seed)

        together = Scattering()(images)

        alone = torch.cat([Scattering()(image[None]) for image in images])
        torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-9)

    def test_wavelets_have_zero_mean_and_pass_less_energy_than_comes_in(self) -> None:
        bank = filter_bank(36, 40, 2, 8)
        energy = torch.stack([(each[0] ** 2).sum(0) for each in bank.wavelets]).sum(0) / 2

        for levels in bank.wavelets:
            for level in levels:
                assert level[:, 0, 0].abs().max() < 1e-12
        low = torch.fft.fft2(torch.outer(gaussian(36), gaussian(40))).abs() ** 2
        mirrored = torch.roll(energy.flip(0, 1), (1, 1), (0, 1))
        assert (energy + mirrored + low).max() < 1.1

    @settings(max_examples=20)
    @given(seed=st.integers(0, 1000))
    def test_the_energy_does_not_grow(self, seed: int) -> None:
        images = noise(4, 1, 16, 16, seed=seed) - 0.5

        out = Scattering()(images)

        # A place stands for the 16 pixels around it; reflected margins add what they repeat.
        assert bool((16 * out.square().sum((1, 2, 3)) < 1.2 * images.square().sum((1, 2, 3))).all())

    def test_a_constant_image_has_order_zero_only(self) -> None:
        out = Scattering()(torch.full((1, 1, 28, 28), 0.7, dtype=torch.float64))

        torch.testing.assert_close(out[:, 0], torch.full_like(out[:, 0], 0.7), rtol=1e-3, atol=0)
        assert out[:, 1:].abs().max() < 1e-12

    def test_a_pixel_of_translation_moves_it_less_than_the_image(self) -> None:
        images = torch.nn.functional.pad(noise(4, 1, 20, 20), (6, 6, 6, 6))
        moved = images.roll(1, 3)

        def change(before: torch.Tensor, after: torch.Tensor) -> float:
            return float((after - before).norm() / before.norm())

        scattering = Scattering()
        assert change(scattering(images), scattering(moved)) < 0.3 * change(images, moved)

    def test_opponent_colours_keep_the_energy_and_call_grey_by_one_channel(self) -> None:
        grey = noise(2, 1, 16, 16).expand(2, 3, 16, 16)
        scattering = Scattering(opponent_colours=True)

        brightness, *differences = scattering(grey).chunk(3, dim=1)

        torch.testing.assert_close(brightness, 3**0.5 * Scattering()(grey[:, :1]))
        assert max(each.abs().max() for each in differences) < 1e-12
        colours = noise(2, 3, 16, 16, seed=1)
        before, after = (Scattering(opponent_colours=o)(colours) for o in (False, True))
        means = [out.unflatten(1, (3, 81))[:, :, 0].square().sum() for out in (before, after)]
        torch.testing.assert_close(*means)

    @pytest.mark.parametrize("channels", [1, 2, 4])
    def test_other_numbers_of_channels_are_no_colours(self, channels: int) -> None:
        images = noise(2, channels, 8, 8)

        assert torch.equal(Scattering(opponent_colours=True)(images), Scattering()(images))

    def test_a_constant_added_to_an_image_leaves_the_wavelets_alone(self) -> None:
        images = noise(2, 1, 28, 28)

        plain, lifted = Scattering()(images), Scattering()(images + 1)

        torch.testing.assert_close(plain[:, 1:], lifted[:, 1:], atol=1e-12, rtol=1e-9)
        torch.testing.assert_close(plain[:, :1] + 1, lifted[:, :1], atol=0.003, rtol=0)


def gaussian(side: int) -> torch.Tensor:
    places = torch.arange(side, dtype=torch.float64)
    places = torch.minimum(places, side - places)
    values = torch.exp(-(places**2) / (2 * 1.6**2))
    return values / values.sum()
