"""Many simulations of a linear classifier at once: they share every draw, and two products serve all.

A step of one linear classifier reads its batch twice and computes little, so T of them on the same
Poisson draw take far less than T times as long. What each does with its gradients is its own: clipping,
noise, optimiser, schedule, average.
"""

# Shape legend: B = examples (varies, may be 0), F = features, O = classes, D = O - 1, P = (F + 1) * O
# parameters of a trial, T = trials, A = those that go on, N = A * D.
import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core import _validate
from tan_core.engine import native, onednn
from tan_core.engine.averaging import average
from tan_core.engine.clipping import ClippingRule, clipping_rule
from tan_core.engine.divergence import is_diverged
from tan_core.engine.ensemble_checks import (
    check_config,
    check_counts,
    check_data,
    check_pairs,
    check_simulations,
    linear_layers,
)
from tan_core.engine.inputs import Array, as_floats, as_indices, as_tensor
from tan_core.engine.layers.base import squared_norms
from tan_core.engine.optimizers import make_optimizer
from tan_core.engine.randomness import Randomness
from tan_core.engine.timing import least_seconds
from tan_core.engine.trainer import StepStats
from tan_core.engine.trainer_checks import check_randomness
from tan_core.errors import ParameterError
from tan_core.execution import Simulation
from tan_core.spec.schedules import scheduled_learning_rate
from tan_core.spec.train import Clipping, TrainerConfig

_IN_CACHE: Final = 2**19
"""Numbers of inputs that torch scores and sums while they are in a cache."""

_READ_AHEAD: Final = 2**21
"""The same for the kernels."""

_FEWEST: Final = 64
"""Examples at once, whatever they are."""

_TOGETHER: Final = (3, 5)
"""Outputs that the kernel sums at once: nothing is left of a number that one of them divides."""


class LinearEnsemble:
    """T simulations of a linear classifier that share their draws and nothing else; on the CPU.

    Formal guarantees:

    * Each trial ends with the weights that a :class:`~tan_core.engine.trainer.Trainer` of its own gives
      it with the same draws and noise, up to float rounding, whatever the other trials do.
    * An example whose gradient or loss is not finite in a trial contributes exactly zero to that trial.
    * A trial whose weights are no longer finite stays as it is and costs no more time.

    Args:
        models: T models of one linear layer with a bias and nothing else but a flattening of the inputs,
            all of one shape and dtype. They give the initial weights and are left alone.
        simulations: T, of equal sampling rate, steps and examples.
        configs: T, without augmentation; each ``clip_norm`` is that of its simulation.
        inputs: the whole training split, uint8 [N, C, H, W] or float [N, F].
        labels: [N], integers in [0, O).
        randomness: of the draws, and of the noise: all trials have the same noise then, which pairs them.
        noises: T, each of which gives a trial a noise of its own instead.
        microbatch_size: examples in memory at once.

    Raises:
        ParameterError: a trial is a private run, whose draw and key are its own, or the arguments do not
            fit each other; the message names the trial and the field.
    """

    def __init__(
        self,
        *,
        models: Sequence[nn.Module],
        simulations: Sequence[Simulation],
        configs: Sequence[TrainerConfig],
        inputs: Array,
        labels: Array,
        randomness: Randomness,
        noises: Sequence[Randomness] | None = None,
        microbatch_size: int = 2048,
    ) -> None:
        microbatch_size = _validate.plain(microbatch_size)
        _validate.positive_integer(microbatch_size=microbatch_size)
        models = _validate.sequence(nn.Module, models=models)
        simulations = _validate.items(Simulation, simulations=simulations)
        configs = _validate.sequence(TrainerConfig, configs=configs)
        check_randomness("randomness", randomness)
        if noises is not None:
            noises = _validate.items(Randomness, noises=noises)
            for trial, noise in enumerate(noises):
                check_randomness(f"noises[{trial}]", noise)
        check_counts(models, simulations=simulations, configs=configs, noises=noises)
        check_simulations(simulations)
        layers = linear_layers(models)
        self._num_classes, self._num_features = layers[0].weight.shape
        self._shared = simulations[0]
        self._inputs, self._labels = as_tensor(inputs), as_indices(labels, field="labels").clone()
        check_data(self._inputs, self._labels, layers[0], simulations[0])
        for trial, (config, simulation) in enumerate(zip(configs, simulations, strict=True)):
            check_config(trial, config, simulation, self._inputs)
        self._weights_TOF = torch.stack([layer.weight.detach() for layer in layers])
        self._biases_TO = torch.stack([layer.bias.detach() for layer in layers])
        self._trials = [
            _Trial(simulation, config, parameters)
            for simulation, config, *parameters in zip(
                simulations, configs, self._weights_TOF, self._biases_TO, strict=True
            )
        ]
        self._running = list(range(len(models)))
        self._names = [[name for name, _ in model.named_parameters()] for model in models]
        self._randomness, self._noises = randomness, noises
        self._microbatch_size = microbatch_size
        self._steps_done = 0
        # ||(x, 1)||^2 of every example, as a bias is a weight of the input 1.
        self._squares_N = 1 + torch.cat(
            [squared_norms(self._floats(chunk)) for chunk in self._inputs.split(microbatch_size)]
        )

    def __getstate__(self) -> dict[str, Any]:
        """For a copy, here or elsewhere: what a step writes to is its own."""
        names = ("_weights_TOF", "_biases_TO", "_trials", "_running")
        return {**vars(self), **{name: copy.deepcopy(vars(self)[name]) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # A pickle gives each slice memory of its own, and a step reads them all in one.
        for trial, *parameters in zip(
            self._trials, self._weights_TOF, self._biases_TO, strict=True
        ):
            trial.move_to(parameters)

    @property
    def steps_done(self) -> int:
        """Steps that the trials which go on have taken."""
        return self._steps_done

    @property
    def diverged(self) -> tuple[int, ...]:
        """The trials that were given up, as their weights are no longer finite."""
        return tuple(t for t in range(len(self._trials)) if t not in self._running)

    @torch.no_grad()
    def step(self) -> tuple[StepStats | None, ...]:
        """Take one step in every trial that goes on; None for the others."""
        dynamics = self._shared.dynamics
        if self._steps_done >= dynamics.steps:
            raise ParameterError(
                f"the simulations have {dynamics.steps} steps and all are taken", field="steps"
            )
        drawn_B = torch.from_numpy(
            self._randomness.mask(
                self._steps_done,
                num_examples=len(self._inputs),
                sampling_rate=dynamics.sampling_rate,
            )
        )
        *sums, stats = self._clipped_sums(drawn_B)
        for t, noise_P, *own_sums in zip(self._running, self._noise(), *sums, strict=True):
            self._trials[t].update(own_sums, noise_P, step=self._steps_done)
        self._running = [t for t in self._running if not self._trials[t].is_diverged]
        self._steps_done += 1
        return stats

    def evaluate(self, inputs: Array, labels: Array) -> tuple[float | None, ...]:
        """Accuracy in [0, 1] of every trial on a split, by averaged weights where averaging is on.

        A trial that has diverged has None.
        """
        inputs, labels = as_tensor(inputs), as_indices(labels, field="labels")
        if len(labels) == 0:
            raise ParameterError("cannot evaluate on an empty split", field="inputs")
        check_pairs(inputs, labels, num_features=self._num_features)
        accuracies: list[float | None] = [None] * len(self._trials)
        if not self._running:
            return tuple(accuracies)
        released = [self._trials[t].released for t in self._running]
        weights_NF, biases_N = (torch.cat(tensors) for tensors in zip(*released, strict=True))
        num_correct_A = torch.zeros(len(released), dtype=torch.int64)
        for start in range(0, len(labels), self._microbatch_size):
            chunk = slice(start, start + self._microbatch_size)
            logits_BN = onednn.product(self._floats(inputs[chunk]), weights_NF, biases_N)
            predicted_BA = logits_BN.unflatten(1, (-1, self._num_classes)).argmax(2)
            num_correct_A += (predicted_BA == labels[chunk, None]).sum(0)
        for t, num_correct in zip(self._running, num_correct_A.tolist(), strict=True):
            accuracies[t] = num_correct / len(labels)
        return tuple(accuracies)

    def released_weights(self, trial: int) -> dict[str, Tensor]:
        """A copy of a trial's weights by parameter name: averaged weights where averaging is on."""
        trial = _validate.plain(trial)
        _validate.natural_number(trial=trial)
        _validate.in_range(0, len(self._trials) - 1, trial=trial)
        released = self._trials[trial].released
        return {n: value.clone() for n, value in zip(self._names[trial], released, strict=True)}

    def _clipped_sums(self, drawn_B: Tensor) -> tuple[Tensor, Tensor, tuple[StepStats | None, ...]]:
        """Clipped sums over the draw, [A, O, F] and [A, O], and what each trial may tell of it."""
        own_AOF, own_AO = (self._of_running(each) for each in (self._weights_TOF, self._biases_TO))
        products, biases_AD = _Products(own_AOF), _differences(own_AO)
        sum_AD = torch.zeros_like(biases_AD)
        losses: list[Tensor] = []
        norms: list[Tensor] = []
        is_any, rules = self._running and len(drawn_B) > 0, self._rules()
        as_they_lie = products.by_kernels and self._are_readable
        in_cache = _READ_AHEAD if as_they_lie else _IN_CACHE
        at_once = max(in_cache // self._num_features, _FEWEST)
        # As many parts as there are whole ones: what a part costs by itself, a few examples more would not pay.
        parts = max(round(len(drawn_B) / at_once), math.ceil(len(drawn_B) / self._microbatch_size))
        for chunk_B in drawn_B.tensor_split(max(1, parts)) if is_any else ():
            squares_B1, labels_B = self._squares_N[chunk_B, None], self._labels[chunk_B]
            x = self._chosen(chunk_B, as_they_lie=as_they_lie)
            losses_BA, g_BN, squared_BA = _output_gradients(products.scores(x), biases_AD, labels_B)
            norms_BA = squared_BA.mul_(squares_B1).sqrt_()
            g_BAD, finite_BA = g_BN.unflatten(1, biases_AD.shape), norms_BA
            is_finite_BA = norms_BA.isfinite() & losses_BA.isfinite()
            if not bool(is_finite_BA.all()):
                # 0 * NaN is NaN: what is left out must not meet its weight.
                x = _Chosen(x.inputs().masked_fill(~squares_B1.isfinite(), 0))
                g_BAD.masked_fill_(~is_finite_BA[..., None], 0)
                finite_BA = norms_BA.where(is_finite_BA, 0)
            g_BAD *= _weights(rules, finite_BA).to(g_BN.dtype)[..., None]
            products.add(x, g_BN)
            sum_AD += g_BAD.sum(0)
            losses.append(losses_BA)
            norms.append(norms_BA)
        stats = self._stats(len(drawn_B), losses, norms)
        return products.sums(), _with_last(sum_AD), stats

    def _of_running(self, of_all: Tensor) -> Tensor:
        """The rows of the trials that go on; no copy while all do."""
        return of_all if len(self._running) == len(of_all) else of_all[self._running]

    def _rules(self) -> list[tuple[ClippingRule, list[int], Tensor]]:
        """What gradients are multiplied by: rules, the trials among those that go on, and their C."""
        rows: dict[object, list[int]] = {}
        for row, t in enumerate(self._running):
            rows.setdefault(self._trials[t].kind_of_rule, []).append(row)
        found: list[tuple[ClippingRule, list[int], Tensor]] = []
        for own in rows.values():
            trials = [self._trials[self._running[row]] for row in own]
            clip_norms = torch.tensor([each.clip_norm for each in trials], dtype=torch.float64)
            found.append((trials[0].rule, own, clip_norms))
        return found

    def _stats(
        self, num_drawn: int, losses: list[Tensor], norms: list[Tensor]
    ) -> tuple[StepStats | None, ...]:
        step = self._steps_done + 1
        stats: list[StepStats | None] = [None] * len(self._trials)
        if not losses:
            for t in self._running:
                stats[t] = StepStats(step=step, num_drawn=num_drawn)
            return tuple(stats)
        clip_norms_A = torch.tensor([self._trials[t].clip_norm for t in self._running])
        is_clipped_BA = torch.cat(norms) > clip_norms_A
        for t, loss, fraction in zip(
            self._running,
            torch.cat(losses).mean(0).tolist(),
            is_clipped_BA.float().mean(0).tolist(),
            strict=True,
        ):
            stats[t] = StepStats(
                step=step,
                num_drawn=num_drawn,
                train_loss=loss,
                clipped_fraction=fraction if self._trials[t].clips else None,
            )
        return tuple(stats)

    def _noise(self) -> list[Tensor]:
        """[P] for each trial that goes on."""
        num_parameters = (self._num_features + 1) * self._num_classes
        if self._noises is None:
            shared_P = self._randomness.noise(self._steps_done, num_parameters)
            return [shared_P.to(self._weights_TOF)] * len(self._running)
        return [
            self._noises[t].noise(self._steps_done, num_parameters).to(self._weights_TOF)
            for t in self._running
        ]

    def _chosen(self, chunk_B: Tensor, *, as_they_lie: bool) -> "_Chosen":
        """Some examples, gathered or where they lie."""
        if as_they_lie:
            return _Chosen(self._inputs.flatten(1), chunk_B)
        return _Chosen(self._floats(self._inputs.index_select(0, chunk_B)))

    @property
    def _are_readable(self) -> bool:
        """Whether the kernels can read the examples where they lie."""
        return self._inputs.dtype == self._weights_TOF.dtype and self._inputs.is_contiguous()

    def _floats(self, inputs: Tensor) -> Tensor:
        """[B, F] in the dtype of the weights."""
        return as_floats(inputs.flatten(1), self._weights_TOF.dtype)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Some examples, in the dtype of the weights."""

    values: Tensor
    """[B, F], or all records, [., F]."""
    rows: Tensor | None = None
    """[B]: which records; None: all values."""

    def inputs(self) -> Tensor:
        """[B, F]."""
        return self.values if self.rows is None else self.values.index_select(0, self.rows)


class _Products:
    """The two products of a step, of all trials.

    A softmax depends on the scores of D classes less that of the last alone, and the gradients by all O
    scores of an example add up to 0: a product of D columns does for one of O.
    """

    def __init__(self, weights_AOF: Tensor) -> None:
        outputs = weights_AOF.shape[0] * (weights_AOF.shape[1] - 1)
        self._packed: native.EnsembleWeights | None = None
        if (
            any(outputs % each == 0 for each in _TOGETHER if outputs)
            and native.accepts(weights_AOF)
            and kernels_are_faster()
        ):
            self._packed = native.ensemble_weights(weights_AOF)
            self._sum_AOF = torch.zeros_like(weights_AOF)
        else:
            weights_ADF = _differences(weights_AOF)
            self._weights_NF = weights_ADF.flatten(0, 1)
            self._sum_ADF = torch.zeros_like(weights_ADF)

    @property
    def by_kernels(self) -> bool:
        """Whether they are made by kernels, which read examples where they lie."""
        return self._packed is not None

    def scores(self, x: _Chosen) -> Tensor:
        """[B, N] or more columns, which do not count: less those of each trial's last class; without biases."""
        if self._packed is None:
            return onednn.product(x.inputs(), self._weights_NF)
        return native.ensemble_scores(x.values, self._packed, x.rows)

    def add(self, x: _Chosen, g_BN: Tensor) -> None:
        """Add what the examples weigh to the sums."""
        if self._packed is None:
            self._sum_ADF.flatten(0, 1).addmm_(g_BN.t(), x.inputs())
        else:
            native.add_ensemble_sums(x.values, g_BN, self._sum_AOF, x.rows)

    def sums(self) -> Tensor:
        """[A, O, F]."""
        if self._packed is None:
            return _with_last(self._sum_ADF)
        return self._sum_AOF


@cache
def kernels_are_faster() -> bool:
    """Whether this processor makes the scores of an ensemble faster by kernels than by torch, found out once, in some 30 ms."""
    x = torch.ones(128, 2048, dtype=torch.float32)
    weights_TOF = torch.ones(16, 10, 2048, dtype=torch.float32)
    weights_NF, packed = (
        _differences(weights_TOF).flatten(0, 1),
        native.ensemble_weights(weights_TOF),
    )
    own = least_seconds(lambda: native.ensemble_scores(x, packed))
    return own <= least_seconds(lambda: onednn.product(x, weights_NF))


class _Trial:
    """What one trial does with its own clipped sums. Its weights and biases are slices of all."""

    def __init__(
        self, simulation: Simulation, config: TrainerConfig, parameters: Sequence[Tensor]
    ) -> None:
        self._config, self._parameters = config, parameters
        self._steps = simulation.dynamics.steps
        self._deviation = simulation.dynamics.noise_multiplier * simulation.dynamics.clip_norm
        self._divisor = simulation.dynamics.clip_norm * simulation.expected_batch_size
        self.rule = clipping_rule(config)
        self.kind_of_rule = config.clipping, config.clipping_stability
        self.clips = config.clipping is Clipping.PER_EXAMPLE
        """Whether its rule shortens the long gradients and leaves the others as they are."""
        self._optimizers = [make_optimizer(config, each) for each in parameters]
        self._means = [each.clone() for each in parameters] if config.ema_decay else []

    def move_to(self, parameters: Sequence[Tensor]) -> None:
        """Have them there from now on, where their numbers are already."""
        self._parameters = parameters

    @property
    def clip_norm(self) -> float:
        """C, of its simulation too."""
        return self._config.clip_norm

    @property
    def released(self) -> Sequence[Tensor]:
        """Weights [O, F] and biases [O], averaged where averaging is on."""
        return self._means or self._parameters

    @property
    def is_diverged(self) -> bool:
        """Whether a parameter is no longer a finite number."""
        # Terms of a finite sum are finite, and the sum takes a tenth of the time.
        return any(not bool(p.sum().isfinite()) and is_diverged(p) for p in self._parameters)

    def update(self, sums: Sequence[Tensor], noise_P: Tensor, *, step: int) -> None:
        """Add noise, divide, move and average; ``sums`` are overwritten."""
        rate = scheduled_learning_rate(self._config, step=step, steps=self._steps)
        noises = noise_P.split([each.numel() for each in sums])
        for own, total, noise, optimizer in zip(
            self._parameters, sums, noises, self._optimizers, strict=True
        ):
            total.add_(noise.view_as(total), alpha=self._deviation).div_(self._divisor)
            optimizer.update(own, total, learning_rate=rate, step=step)
        for mean, own in zip(self._means, self._parameters, strict=False):
            average(mean, own, decay=self._config.ema_decay, step=step)


def _differences(of_classes: Tensor) -> Tensor:
    """[A, D, ...]: those of all classes but the last, less that of the last."""
    return of_classes[:, :-1] - of_classes[:, -1:]


def _with_last(of_classes: Tensor) -> Tensor:
    """[A, O, ...] of [A, D, ...]: the last is minus the sum of the others."""
    return torch.cat([of_classes, -of_classes.sum(1, keepdim=True)], 1)


def _output_gradients(
    scores: Tensor, biases_AD: Tensor, labels_B: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [B, A], gradients by the logits [B, N], and the squared norms of those by all O, [B, A] in float64.

    The gradients are probabilities minus the one-hot label. Of ``scores``, [B, .], the first N count.
    """
    if native.accepts(scores, biases_AD):
        return native.ensemble_gradients(scores, biases_AD, labels_B)
    trials, differences = biases_AD.shape
    logits_BAD = scores[:, : trials * differences].unflatten(1, biases_AD.shape) + biases_AD
    log_p_BAO = functional.pad(logits_BAD, (0, 1)).log_softmax(2)
    labels_BA1 = labels_B[:, None, None].expand(-1, trials, 1)
    losses_BA1 = -log_p_BAO.gather(2, labels_BA1)
    minus_one = log_p_BAO.new_full((), -1).expand_as(losses_BA1)
    g_BAO = log_p_BAO.exp_().scatter_add_(2, labels_BA1, minus_one)
    squared_BA = g_BAO.square().sum(2, dtype=torch.float64)
    return losses_BA1.squeeze(2), g_BAO[..., :-1].flatten(1), squared_BA


def _weights(rules: list[tuple[ClippingRule, list[int], Tensor]], norms_BA: Tensor) -> Tensor:
    """What each gradient is multiplied by, [B, A] in float64."""
    if len(rules) == 1:
        ((rule, _, clip_norms_A),) = rules
        return rule(norms_BA, clip_norms_A)
    weights_BA = torch.empty_like(norms_BA)
    for rule, columns, clip_norms in rules:
        weights_BA[:, columns] = rule(norms_BA[:, columns], clip_norms)
    return weights_BA
