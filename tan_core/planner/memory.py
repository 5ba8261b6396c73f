"""How much memory one worker of a private run needs, about."""

from tan_core.planner.model_cost import ModelCost
from tan_core.spec import Choices, StudySpec
from tan_core.spec.train import Optimizer

_FLOAT_BYTES = 4


def memory_bytes(model: ModelCost, spec: StudySpec) -> int | None:
    """Bytes that training holds at its peak, by count and not by measurement; float32 but for the noise.

    Counted: the weights; the clipped sum, the sum of one microbatch and the noise, each as long as what is
    trained, the noise in float64; the averaged weights and the optimiser's moments where the study may use them; for each
    view of a microbatch what all layers put out, once as a value and once as a gradient, and one
    gradient of what is trained. Not counted: the data, temporary buffers, and what the libraries
    themselves occupy. Every layer is counted as one that gradients go back through, also where a study trains its
    classifier alone, and as one whose inputs are kept, also where its bias alone is trained: less is held then.

    Args:
        model: sizes.
        spec: whatever the search may choose is taken at its largest.

    Returns:
        Bytes of one worker; None where the activations are not known.
    """
    if model.activation_floats_per_example is None:
        return None
    trained = model.num_parameters if model.num_trained is None else model.num_trained
    vectors = 4 + _may_average(spec) + _num_moments(spec)
    of_a_view = 2 * model.activation_floats_per_example + trained
    floats = model.num_parameters + vectors * trained + spec.train.microbatch_size * of_a_view
    return _FLOAT_BYTES * floats


def _may_average(spec: StudySpec) -> bool:
    return spec.train.ema_decay > 0 or spec.searched("ema_decay") is not None


def _num_moments(spec: StudySpec) -> int:
    """Two vectors with Adam, one with momentum, none with plain SGD."""
    searched = spec.searched("optimizer")
    options = searched.choices if isinstance(searched, Choices) else [searched]
    if any(each in (Optimizer.ADAM, Optimizer.ADAMW) for each in (spec.train.optimizer, *options)):
        return 2
    return int(spec.train.momentum > 0 or spec.searched("momentum") is not None)
