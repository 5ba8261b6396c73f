"""Values as Hypothesis draws them: what anybody might ask for, and the corners of it."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tan_core.mechanism import Mechanism, NeighboringRelation
from tan_core.spec import StudySpec

_RATES = st.one_of(st.just(1.0), st.floats(-5, 0).map(lambda power: 10.0**power))
_NOISE = st.floats(-0.5, 2).map(lambda power: 10.0**power)
_STEPS = st.floats(0, 5).map(lambda power: round(10.0**power))


def mechanisms(
    *,
    sampling_rates: st.SearchStrategy[float] = _RATES,
    noise_multipliers: st.SearchStrategy[float] = _NOISE,
    steps: st.SearchStrategy[int] = _STEPS,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> st.SearchStrategy[Mechanism]:
    """Noisy sums of Poisson batches; full batches among them. One relation, so that all compose."""
    return st.builds(
        Mechanism,
        sampling_rate=sampling_rates,
        noise_multiplier=noise_multipliers,
        clip_norm=st.sampled_from([0.1, 1.0]),
        steps=steps,
        neighboring_relation=st.just(neighboring_relation),
    )


@st.composite
def gradient_batches(
    draw: st.DrawFn,
    *,
    shape: tuple[int, ...] = (1, 8, 8),
    num_classes: int = 3,
    max_examples: int = 9,
    views: tuple[int, ...] = (1, 4),
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """Inputs [B * K, *shape] of any size, labels [B] and K; empty batches and batches of one among them."""
    num_views, examples = draw(st.sampled_from(views)), draw(st.integers(0, max_examples))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = 10.0 ** draw(st.integers(-3, 6))
    inputs = scale * generator.standard_normal((examples * num_views, *shape))
    return inputs, generator.integers(0, num_classes, examples), num_views


@st.composite
def study_specs(draw: st.DrawFn, *, dataset: str = "digits") -> StudySpec:
    """Studies that are accepted, of models without a file or a package of their own."""
    models: list[dict[str, Any]] = [
        {"name": "linear"},
        {"name": "mlp", "hidden": [32]},
        {"name": "tanh-cnn"},
        {"name": "scatter-linear"},
        {"name": "wrn-16-4", "weight_standardization": True},
    ]
    space: dict[str, Any] = {"learning_rate": {"low": 0.1, "high": 10.0, "log": True}}
    more: dict[str, Any] = {
        "momentum": {"choices": [0.0, 0.9]},
        "steps": {"choices": [150, 300]},
        "ema_decay": {"low": 0.9, "high": 0.999},
        "augmentation_multiplicity": {"low": 1, "high": 4},
    }
    model = draw(st.sampled_from(models))
    if model["name"] == "scatter-linear":  # its features are computed once
        del more["augmentation_multiplicity"]
    space |= {key: more[key] for key in draw(st.sets(st.sampled_from(sorted(more))))}
    return StudySpec.model_validate(
        {
            "name": draw(st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True)),
            "privacy": {
                "epsilon": draw(st.floats(0.5, 20)),
                "delta": draw(st.sampled_from([1e-5, 1e-6])),
                "accountant": draw(st.sampled_from(["pld", "rdp"])),
            },
            "dataset": dataset,
            "model": model,
            "search": {
                "accounting": "declared_unaccounted",
                "trials": draw(st.integers(1, 64)),
                "sampler": draw(st.sampled_from(["tpe", "random"])),
                "seed": draw(st.integers(0, 2**31 - 1)),
                "space": space,
            },
            "train": {
                "batch_size": draw(st.sampled_from(["auto", 64, 256])),
                "clip_norm": draw(st.floats(0.01, 10)),
                "optimizer": draw(st.sampled_from(["sgd", "adam"])),
            },
        }
    )
