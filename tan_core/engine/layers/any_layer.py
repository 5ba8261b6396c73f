"""Any layer: the gradient of each example by itself, from one run of the layer, by torch.func.

What entered the layer is cut into examples, the layer alone runs again on each of them, and the
gradient of what left it is pulled back to its parameters. No other layer takes part.
"""

# Shape legend: B = examples, K = views of each, V = B * K.
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map_only, tree_unflatten

_LOOPED = (nn.RNNBase, nn.RNNCellBase)
"""What vmap cannot run: they add in place to what all examples share."""

_TOLERANCE = 1e-2
"""Of what leaves a layer, in the batch and alone: rounding is far below, mixing far above."""

_SIMPLE = tree_flatten(((0,), {}))[1]
"""The structure of one positional argument."""


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a layer."""

    entered: Sequence[Any]
    """Arguments, nested ones taken apart; tensors are detached. None where they are not kept."""
    structure: TreeSpec
    """How they stood in (args, kwargs)."""
    outputs: Sequence[Tensor]
    """The floating-point tensors that left the layer, nested ones taken apart."""
    ends: Sequence[GradientEdge]
    """Where in the graph each of them left it: what is written to a tensor afterwards comes behind that."""
    versions: Sequence[int]
    """Of those tensors whose values are read later, while the layer ran: writing to one counts up."""
    reads_outputs: bool
    """Whether the values of ``outputs`` are among them."""

    @classmethod
    def of(
        cls,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
        *,
        keeps_inputs: bool = True,
        reads_outputs: bool = True,
    ) -> tuple["Call", Any]:
        """What a forward hook is told, and what the hook is to hand on instead of the output.

        The gradients of ``outputs`` are those that come from outside of the layer: where several leave
        it, one may depend on another, so aliases of them are handed on.

        Where the values of a single output are not read, as of layers of a known kind, whoever gets it may write to it.
        """
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and _is_float(output):
            entered = [args[0].detach()] if keeps_inputs else []
            output = output if output.requires_grad else _begun(output)
            structure, outputs = _SIMPLE, [output]
        else:
            leaves, structure = tree_flatten((args, dict(kwargs)))
            entered = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            output = tree_map_only(Tensor, _alias, output)
            outputs = _floating(output)
            reads_outputs = True
        ends = [get_gradient_edge(each) for each in outputs]
        versions = _versions(entered, outputs if reads_outputs else [])
        return cls(entered, structure, outputs, ends, versions, reads_outputs), output

    @property
    def is_simple(self) -> bool:
        """Whether one tensor entered and one left."""
        return self.structure is _SIMPLE

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has been written to since that is read."""
        return self.versions == _versions(self.entered, self.outputs if self.reads_outputs else [])


def per_example_gradients(
    layer: nn.Module,
    names: Sequence[str],
    call: Call,
    gradients: Sequence[Tensor | None],
    *,
    num_views: int,
    views: int,
) -> dict[str, Tensor]:
    """Gradients of some parameters of a layer: [B, ...] by name.

    A tensor argument is cut into examples where its first dimension is the views (for the states of
    recurrent layers: the second); all other arguments are constants. So are buffers of the layer.

    Args:
        layer: what ran.
        names: parameters of the layer and of the layers in it.
        call: its run.
        gradients: of ``call.outputs``; None where the loss does not depend on it.
        num_views: V.
        views: K.

    Raises:
        RuntimeError: an output does not have the views where it must, or the layer cannot run on one
            example alone or gives something else then; the message ends a sentence about the layer.
    """
    used = [at for at, gradient in enumerate(gradients) if gradient is not None]
    constants = _constants(layer, call)
    mapped = {
        at: _by_example(leaf, _dim(layer, at), views)
        for at, leaf in enumerate(call.entered)
        if isinstance(leaf, Tensor)
        and leaf.untyped_storage().data_ptr() not in constants
        and _has_views(leaf, _dim(layer, at), num_views)
    }
    recorded = [call.outputs[at].detach() for at in used]
    for at, output in zip(used, recorded, strict=True):
        if not _has_views(output, _dim(layer, at), num_views):
            raise RuntimeError(
                f"must have the {num_views} views as first dimension, got {list(output.shape)}"
            )

    def run(parameters: dict[str, Tensor], own: Sequence[Tensor]) -> list[Tensor]:
        leaves = list(call.entered)
        for at, value in zip(mapped, own, strict=True):
            leaves[at] = value
        args, kwargs = tree_unflatten(leaves, call.structure)
        outputs = _floating(functional_call(layer, parameters, args, kwargs))
        return [outputs[at] for at in used]

    parameters = {name: p.detach() for name, p in layer.named_parameters() if name in names}
    pulled = [
        _by_example(gradient, _dim(layer, at), views)
        for at, gradient in enumerate(gradients)
        if gradient is not None
    ]
    rows, again = _differentiated(layer, run, parameters, list(mapped.values()), pulled)
    for at, output, alone in zip(used, recorded, again, strict=True):
        _check_equal(_by_example(output, _dim(layer, at), views), alone)
    return rows


_Run = Callable[[dict[str, Tensor], Sequence[Tensor]], list[Tensor]]
"""(parameters, the mapped inputs of one example) -> its outputs."""
_Result = tuple[dict[str, Tensor], list[Tensor]]


def _differentiated(
    layer: nn.Module,
    run: _Run,
    parameters: dict[str, Tensor],
    inputs: list[Tensor],
    pulled: list[Tensor],
) -> _Result:
    """Gradients and outputs of all examples: at once where vmap can, else one by one."""
    if not isinstance(layer, _LOOPED):
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="There is a performance drop")
                return vmap(partial(_pull, run, parameters))(inputs, pulled)
        except RuntimeError:
            pass  # Control flow that looks at values, say: plain autograd can, or says why not.
    try:
        each = [
            _backward(run, parameters, [x[example] for x in inputs], [g[example] for g in pulled])
            for example in range(len(pulled[0]))
        ]
    except RuntimeError as error:
        raise RuntimeError(f"cannot run on one example alone: {error}") from error
    gradients, outputs = zip(*each, strict=True)
    return (
        {name: torch.stack([of_one[name] for of_one in gradients]) for name in parameters},
        [torch.stack(of_all) for of_all in zip(*outputs, strict=True)],
    )


def _pull(
    run: _Run, parameters: dict[str, Tensor], own: list[Tensor], pulled: list[Tensor]
) -> _Result:
    outputs, pull, *_ = vjp(lambda parameters: run(parameters, own), parameters)
    return pull(pulled)[0], outputs


@torch.enable_grad()
def _backward(
    run: _Run, parameters: dict[str, Tensor], own: list[Tensor], pulled: list[Tensor]
) -> _Result:
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    outputs = run(leaves, own)
    depends = [at for at, output in enumerate(outputs) if output.requires_grad]
    gradients = torch.autograd.grad(
        [outputs[at] for at in depends],
        list(leaves.values()),
        [pulled[at] for at in depends],
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(leaves, gradients, strict=True)), [output.detach() for output in outputs]


def _check_equal(in_batch: Tensor, alone: Tensor) -> None:
    """What left the layer must be what leaves it when it sees one example only."""
    # In float64: the squares of a huge record are infinite in float32, and it would be held to the size of the others.
    size_B = in_batch.flatten(1).norm(dim=1, dtype=torch.float64)
    size = (
        size_B[size_B.isfinite()].max() if bool(size_B.isfinite().any()) else size_B.new_zeros(())
    )
    # Non-finite examples compare as False: they are left out of the sum anyway.
    apart_B = (in_batch - alone).flatten(1).norm(dim=1, dtype=torch.float64)
    if bool((apart_B > _TOLERANCE * size).any()):
        raise RuntimeError(
            "gives something else when it sees one example alone: it mixes the examples of a batch, "
            "draws at random, keeps a state, changes its input in place, or was given a constant "
            "that is as long as the batch and no buffer of it"
        )


def _constants(layer: nn.Module, call: Call) -> set[int]:
    """Where the tensors lie that are no examples, however long they are."""
    tensors = list(layer.buffers())
    if isinstance(layer, nn.MultiheadAttention):
        args, kwargs = tree_unflatten(call.entered, call.structure)
        mask = kwargs.get("attn_mask", args[5] if len(args) > 5 else None)
        tensors += [] if mask is None or mask.dim() > 2 else [mask]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def _dim(layer: nn.Module, at: int) -> int:
    """The dimension of the views: states come second in a recurrent layer and have layers first."""
    return 1 if at > 0 and isinstance(layer, nn.RNNBase) else 0


def _has_views(x: Tensor, dim: int, num_views: int) -> bool:
    return x.dim() > dim and x.shape[dim] == num_views


def _by_example(x: Tensor, dim: int, views: int) -> Tensor:
    """The views of each example together, examples first: [B, ...].

    Row by row in memory: vmap cannot ask whether images are channels-last, and torch 2.13's way back
    through a group norm ends the process on such images. Those of one pixel are contiguous in either
    order, and torch goes by their strides.
    """
    x = x.unflatten(dim, (-1, views)).movedim(dim, 0)
    return x.flatten().view(x.shape)


def _alias(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    _require_gradient(x)
    return x.view_as(x)


class _Begun(Function):
    """The same memory, as if a layer that is trained had made it: unlike a leaf, it may be written to."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, trained: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None


def _begun(x: Tensor) -> Tensor:
    begun: Tensor = _Begun.apply(x, torch.zeros((), requires_grad=True))  # pyright: ignore[reportAssignmentType]
    return begun


def _require_gradient(x: Tensor) -> None:
    if not x.requires_grad:
        x.requires_grad_(True)


def _floating(output: Any) -> list[Tensor]:
    return [x for x in tree_leaves(output) if _is_float(x)]


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _versions(*tensors: Sequence[Any]) -> list[int]:
    return [x._version for each in tensors for x in each if isinstance(x, Tensor)]
