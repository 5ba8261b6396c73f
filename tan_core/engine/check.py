"""Models whose per-example gradients do not exist or would be wrong, refused by name."""

from collections.abc import Iterator

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from tan_core import _validate
from tan_core.errors import ModelError
from tan_core.models.batch_norm import BATCH_NORMS

_DRAWS = "it draws from torch's global generator"
_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_RANDOM = (nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
_EXAMPLES_SECOND = (nn.MultiheadAttention, nn.RNNBase)
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)
_UNSEEN = "the engine must see every layer run, and batches have another size in each step"
_WRAPPERS = {
    "OptimizedModule": f"torch.compile made it: {_UNSEEN}; pass the module itself, which is its _orig_mod",
    "GradSampleModule": "Opacus made it, which keeps gradients of its own; pass the module itself, which is its _module",
}
"""By the name of their class, as neither library is to be loaded for them."""


def check_model(model: nn.Module) -> None:
    """Refuse a model whose per-example gradients do not exist or would be wrong.

    Parameters may be shared between layers, layers may run several times, and any of them may be
    frozen. What only shows when a layer runs is refused in the step itself.

    Raises:
        ModelError: a layer mixes examples (batch normalisation), keeps statistics or a state,
            draws from torch's global generator (dropout), is compiled or wrapped by another library, changes its parameters when it runs, does
            not have examples as first dimension, or has no shape yet; a parameter has a hook on its gradient, or lies where
            another one does; anything is sparse or quantised; its state_dict has more than parameters and buffers, or what no file of weights holds; or
            nothing is trainable. The message names the layer or parameter.
    """
    _validate.instance(nn.Module, model=model)
    for name, layer in model.named_modules():
        where = f"layer {name!r}" if name else "the model"
        for reason in _reasons(layer):
            raise ModelError(f"{where} is {type(layer).__name__}: {reason}", field="model")
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ModelError(
                f"parameter {name!r} has no shape yet: run the model once", field="model"
            )
        if parameter.is_meta:
            raise ModelError(
                f"parameter {name!r} is on the device meta, where it has a shape and no values: give it some first, as "
                "by model.to_empty(device='cpu') and load_state_dict",
                field="model",
            )
        if parameter.is_inference():
            raise ModelError(
                f"parameter {name!r} was made under torch.inference_mode, so nothing has a gradient there; make the model outside of it, "
                "or under torch.no_grad",
                field="model",
            )
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
            raise ModelError(
                f"parameter {name!r} is {parameter.dtype}: norms and sums need float32 or float64",
                field="model",
            )
        if parameter.requires_grad and _has_hooks(parameter):
            raise ModelError(
                f"parameter {name!r} has a hook on its gradient, which no step would run: the gradient of each example goes into "
                "a sum and noise is added to all of it; train fewer parameters by requires_grad_(False), or take the hook away",
                field="model",
            )
    _check_layout(model)
    _check_memory(model)
    _check_released(model)
    trained = {p.dtype: name for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise ModelError("the model has no trainable parameter", field="model")
    if len(trained) > 1:
        (one, name), (other, another) = list(trained.items())[:2]
        raise ModelError(
            f"parameter {name!r} is {one} and {another!r} is {other}: what is trained is one vector of "
            "one type; what is frozen may be in another",
            field="model",
        )


def _has_hooks(parameter: nn.Parameter) -> bool:
    """Whether plain autograd would call somebody with its gradient."""
    hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return any(getattr(parameter, name, None) for name in hooks)


def _check_layout(model: nn.Module) -> None:
    """Refuse what has no numbers in a row: it could not be told whether a step, another rank or a checkpoint has the very same."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.layout != torch.strided or value.is_quantized:
            raise ModelError(
                f"{name!r} of the model is {value.dtype} in layout {value.layout}: sparse and quantised tensors are not compared here; "
                "make it a plain one, as by to_dense() or dequantize()",
                field="model",
            )


def _check_memory(model: nn.Module) -> None:
    """Refuse parameters that are two for autograd and share numbers in memory: a trainer lays each out anew, and would part them."""
    laid = sorted(
        ((p.data_ptr(), name, p) for name, p in model.named_parameters() if p.numel()),
        key=lambda each: each[0],
    )
    for place, (_, name, parameter) in enumerate(laid):
        end = parameter.data_ptr() + _extent(parameter)
        for start, other, second in laid[place + 1 :]:
            if start >= end:
                break
            is_trained = parameter.requires_grad or second.requires_grad
            if is_trained and _share_numbers(parameter, second):
                raise ModelError(
                    f"parameters {name!r} and {other!r} lie in the same memory and are two, so each would be trained by itself; "
                    "share one parameter, as by decoder.weight = encoder.weight, or copy one",
                    field="model",
                )


def _extent(parameter: Tensor) -> int:
    """Bytes from its first number to the end of its last."""
    sides = zip(parameter.shape, parameter.stride(), strict=True)
    return parameter.element_size() * (1 + sum((size - 1) * stride for size, stride in sides))


def _share_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether a number of one lies where one of the other does: the columns of a matrix may lie between each other."""
    if one.device != other.device:
        return False
    found = [_addresses(each.detach()) for each in (one, other)]
    return bool(torch.isin(*found).any())


def _addresses(parameter: Tensor) -> Tensor:
    """Of the first byte of each number."""
    place = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(parameter.shape, parameter.stride(), strict=True):
        place = place[..., None] + stride * torch.arange(size)
    return parameter.data_ptr() + parameter.element_size() * place.flatten()


def _check_released(model: nn.Module) -> None:
    """Refuse what would be released beside parameters and buffers, of which nobody sees that a step changes it."""
    own = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    own |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    for name, value in model.state_dict().items():
        if name not in own:
            raise ModelError(
                f"the model's state_dict has {name!r}, which is no parameter and no buffer: it would be released with the weights, "
                "and may hold private examples; keep it out, or make it a buffer",
                field="model",
            )
        if not _can_be_written(value.dtype):
            # Else the run would end where it is paid for and its weights are to be written.
            raise ModelError(
                f"{name!r} of the model is {value.dtype}, which no file of safetensors holds: it could not be "
                "released with the weights; convert it, or make it a buffer with persistent=False",
                field="model",
            )


def _can_be_written(dtype: torch.dtype) -> bool:
    try:
        save({"": torch.empty(0, dtype=dtype)})
    except (KeyError, RuntimeError):
        return False
    return True


def _reasons(layer: nn.Module) -> Iterator[str]:
    """Why a layer cannot be trained privately, and what to do instead."""
    if type(layer).__name__ in _WRAPPERS:
        yield _WRAPPERS[type(layer).__name__]
    elif vars(layer).get("_compiled_call_impl") is not None:
        yield f"its compile() was called: {_UNSEEN}; pass a module of which it was not"
    elif isinstance(layer, torch.jit.ScriptModule):
        yield f"TorchScript made it: {_UNSEEN}; pass the module that it was made of"
    if isinstance(layer, BATCH_NORMS):
        yield (
            "it mixes the examples of a batch, so no per-example gradient exists; set "
            "model.replace_batch_norm: group in a study, or frozen where it begins from a checkpoint, or call "
            "tan_core.models.replace_batch_norm"
        )
    if getattr(layer, "track_running_stats", False):
        yield "it keeps running statistics of private examples; set track_running_stats=False"
    if isinstance(layer, _DROPOUTS) and layer.p > 0:
        yield f"{_DRAWS}; set p=0: the noise of private steps keeps a model from learning by heart"
    if isinstance(layer, _EXAMPLES_SECOND) and layer.dropout > 0:
        yield f"{_DRAWS}; set dropout=0"
    if isinstance(layer, _RANDOM):
        yield _DRAWS
    if isinstance(layer, _EXAMPLES_SECOND) and not layer.batch_first:
        yield "examples are its second dimension; set batch_first=True"
    if isinstance(layer, _LOOKUPS) and layer.max_norm is not None:
        yield "it writes to its weight whenever a private example is read; set max_norm=None"
    if isinstance(layer, _LOOKUPS) and layer.sparse:
        yield "its gradients are sparse; set sparse=False"
    if isinstance(layer, _LOOKUPS) and layer.scale_grad_by_freq:
        yield (
            "its gradient depends on how often a word stands in the whole batch; set "
            "scale_grad_by_freq=False"
        )
    for name, value in vars(layer).items():
        if isinstance(value, Tensor) and value.grad_fn is not None:
            yield (
                f"its attribute {name!r} was computed of parameters before, with the way back to them, and the engine tries a copy of "
                "the model, which cannot have it; call the model once under torch.no_grad, or use torch.nn.utils.parametrizations"
            )
    if _has_spectral_norm(layer):
        yield "spectral normalisation keeps a state that moves at every run; use weight_norm"


def _has_spectral_norm(layer: nn.Module) -> bool:
    parts: list[object] = [*vars(layer)["_forward_pre_hooks"].values()]
    if parametrize.is_parametrized(layer):
        parts += layer.get_submodule("parametrizations").modules()
    return any(type(part).__name__ in ("SpectralNorm", "_SpectralNorm") for part in parts)
