"""The studies of ``published.py``: what is reproduced, and the spaces that their searches look through."""

from dataclasses import dataclass, field, replace
from typing import Any

DELTA = 1e-5

Space = dict[str, Any]


def _log(low: float, high: float) -> Space:
    return {"low": low, "high": high, "log": True}


def _choices(*values: Any) -> Space:
    return {"choices": list(values)}


_SHARED: Space = {"clip_norm": _log(0.03, 1.0), "ema_decay": _choices(0.0, 0.9, 0.97, 0.99)}


@dataclass(frozen=True)
class Recipe:
    """How a model is searched on a dataset, whatever the epsilon."""

    dataset: str
    model: dict[str, Any]
    trials: int
    space: Space
    train: dict[str, Any] = field(default_factory=dict[str, Any])
    variant: str = ""
    """How its model differs from the one of that name."""

    @property
    def label(self) -> str:
        """The model's name and its variant."""
        return self.model["name"] + (f"-{self.variant}" if self.variant else "")


SCATTER_LINEAR = Recipe(
    dataset="mnist",
    model={"name": "scatter-linear"},
    trials=24,
    space={
        "learning_rate": _log(0.05, 4.0),
        "groups": _choices(9, 27, 81),
        "steps": _choices(300, 600, 1200),
        **_SHARED,
    },
    train={"batch_size": 4096, "momentum": 0.9},
)
WHITENED_LINEAR = Recipe(
    dataset="mnist",
    model={"name": "scatter-linear", "normalization": "whitened"},
    variant="whitened",
    trials=16,
    space={"learning_rate": _log(0.03, 1.0), "steps": _choices(600, 1200), **_SHARED},
    train={"batch_size": 4096, "momentum": 0.9},
)
PATCHES_LINEAR = replace(
    SCATTER_LINEAR, model={**SCATTER_LINEAR.model, "patches": True}, variant="patches"
)
_ANY_FEATURES: Space = {
    "normalization": _choices("group", "whitened"),
    "patches": _choices(False, True),
}
ANY_FEATURES_LINEAR = replace(
    SCATTER_LINEAR,
    variant="any-features",
    trials=32,
    space={**SCATTER_LINEAR.space, "learning_rate": _log(0.03, 2.0), **_ANY_FEATURES},
)
"""What is trained on is the search's own choice."""
CIFAR_WHITENED_LINEAR = Recipe(
    dataset="cifar10-jpeg",
    model=WHITENED_LINEAR.model,
    variant=WHITENED_LINEAR.variant,
    trials=12,
    space={"learning_rate": _log(0.03, 1.0), "steps": _choices(300, 600), **_SHARED},
    train={"batch_size": 8192, "momentum": 0.9},
)
SCATTER_CNN = Recipe(
    dataset="mnist",
    model={"name": "scatter-cnn"},
    trials=12,
    space={
        "learning_rate": _log(0.5, 16.0),
        "groups": _choices(9, 27, 81),
        "steps": _choices(250, 500),
        **_SHARED,
    },
    train={"batch_size": 4096},
)
TANH_CNN = Recipe(
    dataset="mnist",
    model={"name": "tanh-cnn"},
    trials=16,
    space={
        "learning_rate": _log(0.5, 16.0),
        "steps": _choices(500, 1000),
        "augmentation_multiplicity": _choices(1, 2, 4),
        **_SHARED,
    },
    train={"batch_size": 4096, "crop_padding": 2},
)
WIDE_TANH_CNN = replace(
    TANH_CNN, model={**TANH_CNN.model, "width": 32, "hidden": 64}, variant="wide"
)
ANY_WIDTH_TANH_CNN = replace(
    TANH_CNN,
    space={**TANH_CNN.space, "width": _choices(16, 32), "hidden": _choices(32, 64)},
    variant="any-width",
)
CIFAR_SCATTER_LINEAR = Recipe(
    dataset="cifar10-jpeg",
    model={"name": "scatter-linear"},
    trials=12,
    space={
        "learning_rate": _log(0.05, 4.0),
        "groups": _choices(27, 81),
        "steps": _choices(300, 600),
        **_SHARED,
    },
    train={"batch_size": 8192, "momentum": 0.9},
)
CIFAR_FLIP_INVARIANT_LINEAR = replace(
    CIFAR_SCATTER_LINEAR,
    model={**CIFAR_SCATTER_LINEAR.model, "flip_invariant": True},
    variant="flip-invariant",
    trials=24,
)
CIFAR_PATCHES_LINEAR = replace(
    CIFAR_FLIP_INVARIANT_LINEAR,
    model={**CIFAR_FLIP_INVARIANT_LINEAR.model, "patches": True},
    variant="flip-invariant-patches",
)
CIFAR_ANY_FEATURES_LINEAR = replace(
    CIFAR_SCATTER_LINEAR,
    variant="any-features",
    trials=32,
    space={
        **CIFAR_SCATTER_LINEAR.space,
        "learning_rate": _log(0.03, 2.0),
        **_ANY_FEATURES,
        "flip_invariant": _choices(False, True),
    },
)
CIFAR_SCATTER_CNN = Recipe(
    dataset="cifar10-jpeg",
    model={"name": "scatter-cnn"},
    trials=10,
    space={
        "learning_rate": _log(2.0, 16.0),
        "groups": _choices(27, 81),
        "steps": _choices(300, 500),
        **_SHARED,
    },
    train={"batch_size": 4096},
)
CIFAR_FLIP_INVARIANT_CNN = replace(
    CIFAR_SCATTER_CNN,
    model={**CIFAR_SCATTER_CNN.model, "flip_invariant": True},
    variant="flip-invariant",
    trials=12,
)
CIFAR_TANH_CNN = Recipe(
    dataset="cifar10-jpeg",
    model={"name": "tanh-cnn"},
    trials=12,
    space={
        "learning_rate": _log(0.5, 8.0),
        "steps": _choices(500, 1000),
        "width": _choices(16, 32),
        "hidden": _choices(32, 128),
        **_SHARED,
    },
    train={"batch_size": 2048, "horizontal_flip": True},
)
DIGITS = Recipe(
    dataset="digits",
    model={"name": "linear"},
    trials=3,
    space={"learning_rate": _log(0.5, 8.0)},
    train={"batch_size": 128, "steps": 60, "workers": 1},
)


@dataclass(frozen=True)
class Row:
    """One row of the table: a recipe at an epsilon."""

    recipe: Recipe
    epsilon: float

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.recipe.dataset}-{self.recipe.label}-eps{self.epsilon:g}"

    def study(self, seed: int) -> dict[str, Any]:
        """As a user would submit it; it begins from nothing that an earlier study found."""
        return {
            "name": f"{self.name}-seed{seed}",
            "privacy": {"epsilon": self.epsilon, "delta": DELTA, "accountant": "pld"},
            "dataset": self.recipe.dataset,
            "model": self.recipe.model,
            "search": {
                "accounting": "declared_unaccounted",
                "trials": self.recipe.trials,
                "seed": seed,
                "warm_start": "none",
                "space": self.recipe.space,
            },
            "train": {"workers": 2, **self.recipe.train},
        }


ROWS = [
    Row(SCATTER_LINEAR, 3.0),
    Row(SCATTER_LINEAR, 1.0),
    Row(SCATTER_CNN, 3.0),
    Row(SCATTER_CNN, 1.0),
    Row(SCATTER_CNN, 2.0),
    Row(SCATTER_CNN, 4.0),
    Row(SCATTER_LINEAR, 2.0),
    Row(SCATTER_LINEAR, 4.0),
    Row(TANH_CNN, 3.0),
    Row(CIFAR_SCATTER_LINEAR, 3.0),
    Row(TANH_CNN, 1.0),
    Row(TANH_CNN, 2.0),
    Row(TANH_CNN, 4.0),
    Row(CIFAR_SCATTER_LINEAR, 1.0),
    Row(CIFAR_SCATTER_LINEAR, 2.0),
    Row(CIFAR_SCATTER_LINEAR, 4.0),
    Row(CIFAR_SCATTER_CNN, 3.0),
    Row(CIFAR_SCATTER_CNN, 1.0),
    Row(CIFAR_SCATTER_CNN, 2.0),
    Row(CIFAR_SCATTER_CNN, 4.0),
    Row(WHITENED_LINEAR, 2.0),
    Row(WHITENED_LINEAR, 3.0),
    Row(WHITENED_LINEAR, 4.0),
    Row(WHITENED_LINEAR, 1.0),
    Row(PATCHES_LINEAR, 4.0),
    Row(PATCHES_LINEAR, 3.0),
    Row(PATCHES_LINEAR, 2.0),
    Row(PATCHES_LINEAR, 1.0),
    Row(ANY_FEATURES_LINEAR, 4.0),
    Row(ANY_FEATURES_LINEAR, 3.0),
    Row(ANY_FEATURES_LINEAR, 2.0),
    Row(ANY_FEATURES_LINEAR, 1.0),
    Row(CIFAR_ANY_FEATURES_LINEAR, 3.0),
    Row(CIFAR_ANY_FEATURES_LINEAR, 1.0),
    Row(CIFAR_ANY_FEATURES_LINEAR, 2.0),
    Row(CIFAR_ANY_FEATURES_LINEAR, 4.0),
    Row(CIFAR_WHITENED_LINEAR, 3.0),
    Row(CIFAR_WHITENED_LINEAR, 1.0),
    Row(CIFAR_WHITENED_LINEAR, 2.0),
    Row(CIFAR_WHITENED_LINEAR, 4.0),
    Row(CIFAR_FLIP_INVARIANT_LINEAR, 3.0),
    Row(CIFAR_FLIP_INVARIANT_LINEAR, 1.0),
    Row(CIFAR_FLIP_INVARIANT_LINEAR, 2.0),
    Row(CIFAR_FLIP_INVARIANT_LINEAR, 4.0),
    Row(CIFAR_PATCHES_LINEAR, 3.0),
    Row(CIFAR_PATCHES_LINEAR, 1.0),
    Row(CIFAR_PATCHES_LINEAR, 2.0),
    Row(CIFAR_PATCHES_LINEAR, 4.0),
    Row(CIFAR_FLIP_INVARIANT_CNN, 3.0),
    Row(CIFAR_FLIP_INVARIANT_CNN, 1.0),
    Row(CIFAR_FLIP_INVARIANT_CNN, 2.0),
    Row(CIFAR_FLIP_INVARIANT_CNN, 4.0),
    Row(WIDE_TANH_CNN, 4.0),
    Row(WIDE_TANH_CNN, 3.0),
    Row(ANY_WIDTH_TANH_CNN, 4.0),
    Row(ANY_WIDTH_TANH_CNN, 3.0),
    Row(CIFAR_TANH_CNN, 3.0),
    Row(CIFAR_TANH_CNN, 1.0),
    Row(CIFAR_TANH_CNN, 2.0),
    Row(CIFAR_TANH_CNN, 4.0),
]
"""The cheapest and most telling ones first."""

QUICK = Row(DIGITS, 3.0)
