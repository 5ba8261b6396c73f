"""One small model of every family that has a name of its own."""

from tan_core.spec.models import (
    LinearModel,
    MlpModel,
    ModelSpec,
    NfResNetModel,
    ScatterCnnModel,
    ScatterLinearModel,
    TanhCnnModel,
    VitModel,
    WideResNetModel,
)

SMALL_MODELS: dict[str, ModelSpec] = {
    "linear": LinearModel(),
    "mlp": MlpModel(),
    "tanh-cnn": TanhCnnModel(),
    "scatter-linear": ScatterLinearModel(),
    "scatter-cnn": ScatterCnnModel(),
    "wrn-16-4": WideResNetModel(),
    "nf-resnet-50": NfResNetModel(width=1),
    "vit-tiny": VitModel(depth=2, width=12),
}
