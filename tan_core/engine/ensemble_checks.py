"""What an ensemble of linear classifiers refuses, by trial and field."""

from collections.abc import Sequence

from torch import Tensor, nn

from tan_core.engine.augment import Augmentation
from tan_core.engine.layers import is_changed_both_ways
from tan_core.errors import ParameterError
from tan_core.execution import Simulation
from tan_core.mechanism import Sampling
from tan_core.models.changed import is_refitted
from tan_core.spec.train import Precision, TrainerConfig


def linear_layers(models: Sequence[nn.Module]) -> list[nn.Linear]:
    """The layer of each model."""
    layers: list[nn.Linear] = []
    for trial, model in enumerate(models):
        leaves = list(model.modules())
        linear = [layer for layer in leaves if type(layer) is nn.Linear]
        others = any(type(each) not in (nn.Sequential, nn.Linear, nn.Flatten) for each in leaves)
        if (
            len(linear) != 1
            or others
            or not _is_whole(linear[0])
            or any(map(is_changed_both_ways, leaves))
        ):
            raise ParameterError(
                "an ensemble is of models with one linear layer with a bias, after a flattening at "
                "most; all of it trained, weight before bias, with no hooks and no forward of its own; "
                f"models[{trial}] is {model}; use a Trainer",
                field="models",
            )
        layer, first = linear[0], (layers or linear)[0]
        if (layer.weight.shape, layer.weight.dtype) != (first.weight.shape, first.weight.dtype):
            raise ParameterError(
                f"the models must be of one shape and dtype; models[0] has {_described(first)}, "
                f"models[{trial}] {_described(layer)}",
                field="models",
            )
        layers.append(layer)
    return layers


def _is_whole(layer: nn.Linear) -> bool:
    """Whether it is trained as an ensemble trains it: all of it, and with noise in this order."""
    own = list(layer.parameters())
    if is_refitted(layer) or [id(each) for each in own] != [id(layer.weight), id(layer.bias)]:
        return False
    return all(each.requires_grad for each in own)


def _described(layer: nn.Linear) -> str:
    return f"{list(layer.weight.shape)} {layer.weight.dtype}"


def check_counts(models: Sequence[nn.Module], **others: Sequence[object] | None) -> None:
    """Refuse anything that is not one for each model."""
    if len(models) == 0:
        raise ParameterError("an ensemble needs at least one trial, got no models", field="models")
    for name, values in others.items():
        if values is not None and len(values) != len(models):
            raise ParameterError(
                f"{name} must be one for each of the {len(models)} models, got {len(values)}",
                field=name,
            )


def check_simulations(simulations: Sequence[Simulation]) -> None:
    """Refuse private runs, and simulations that cannot share their draws."""
    for trial, simulation in enumerate(simulations):
        if not isinstance(simulation, Simulation):  # pyright: ignore[reportUnnecessaryIsInstance] a private run must never share its draw
            raise ParameterError(
                f"simulations[{trial}] is a {type(simulation).__name__}; accepted: Simulation, for the "
                "trials share their draws, and a private run has its own",
                field="simulations",
            )
        if simulation.dynamics.sampling is not Sampling.POISSON:
            raise ParameterError(
                f"simulations[{trial}] has sampling {simulation.dynamics.sampling.value}; accepted: "
                f"{Sampling.POISSON.value}",
                field="sampling",
            )
        for name in ("sampling_rate", "steps"):
            first, own = (getattr(each.dynamics, name) for each in (simulations[0], simulation))
            if own != first:
                raise ParameterError(
                    f"trials that share their draws have one {name}: simulations[0] has {first}, "
                    f"simulations[{trial}] {own}",
                    field=name,
                )
        if simulation.num_examples != simulations[0].num_examples:
            raise ParameterError(
                "trials that share their draws have one num_examples: simulations[0] has "
                f"{simulations[0].num_examples}, simulations[{trial}] {simulation.num_examples}",
                field="num_examples",
            )


def check_data(inputs: Tensor, labels: Tensor, layer: nn.Linear, simulation: Simulation) -> None:
    """Refuse data that do not fit the model or the plan."""
    if len(inputs) != simulation.num_examples:
        raise ParameterError(
            f"inputs hold {len(inputs)} examples, the simulations were planned for "
            f"{simulation.num_examples}",
            field="inputs",
        )
    check_pairs(inputs, labels, num_features=layer.in_features)
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= layer.out_features:
        raise ParameterError(
            f"labels must be in [0, {layer.out_features}), got {lowest} to {highest}",
            field="labels",
        )


def check_pairs(inputs: Tensor, labels: Tensor, *, num_features: int) -> None:
    """Refuse records of another size than the models read, and labels that are not one for each."""
    if len(labels) != len(inputs):
        raise ParameterError(f"{len(inputs)} inputs but {len(labels)} labels", field="labels")
    if inputs[0].numel() != num_features:
        raise ParameterError(
            f"the models read {num_features} features, the inputs have {inputs[0].numel()}",
            field="inputs",
        )


def check_config(trial: int, config: TrainerConfig, simulation: Simulation, inputs: Tensor) -> None:
    """Refuse another clipping norm than the simulation's, another precision than float32, shares of classes, and augmentation."""
    if config.precision is not Precision.FLOAT32:
        raise ParameterError(
            f"configs[{trial}].precision is {config.precision.value}, an ensemble computes in "
            f"{Precision.FLOAT32.value}",
            field="precision",
        )
    if config.class_shares is not None:
        raise ParameterError(
            f"configs[{trial}] has class_shares, by which an ensemble does not weigh; use a Trainer",
            field="class_shares",
        )
    if config.clip_norm != simulation.dynamics.clip_norm:
        raise ParameterError(
            f"configs[{trial}].clip_norm is {config.clip_norm!r}, the simulation's is "
            f"{simulation.dynamics.clip_norm!r}; they must be equal",
            field="clip_norm",
        )
    augmentation = Augmentation.of(
        tuple(inputs.shape[1:]),
        multiplicity=config.augmentation_multiplicity,
        crop_padding=config.crop_padding,
        horizontal_flip=config.horizontal_flip,
        color_jitter=config.color_jitter,
        dtype=inputs.dtype,
    )
    if not augmentation.is_identity:
        raise ParameterError(
            f"configs[{trial}] asks for augmentation, and the trials share the examples as they are; "
            "set augmentation_multiplicity: 1, crop_padding: 0, horizontal_flip: false and "
            "color_jitter: 0",
            field="augmentation_multiplicity",
        )
