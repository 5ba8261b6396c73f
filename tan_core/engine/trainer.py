"""DP-SGD step by step: draw, clip, sum, add noise once, divide by the expected batch, update.

A step is a function of the parameters, the data and the randomness of that step. Neither the number
of ranks nor the microbatch size is part of the mechanism, and neither changes the update beyond float
rounding.
"""

# Shape legend: B = examples of this step (varies, may be 0), P = parameters, flattened.
import copy
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from threading import RLock
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tan_core import _validate
from tan_core.engine.audit import audit, steps_between_audits
from tan_core.engine.augment import Augmentation
from tan_core.engine.averaging import average
from tan_core.engine.bookkeeping import Books
from tan_core.engine.clipping import class_weights, clipping_rule
from tan_core.engine.coverage import check_coverage
from tan_core.engine.divergence import is_diverged
from tan_core.engine.flat import FlatParameters
from tan_core.engine.frozen import (
    Sketch,
    changed,
    check_sketch,
    numbers_of,
    sketch,
    sketch_of_buffers,
)
from tan_core.engine.gradients import ClippedSum, check_model, clipped_sum
from tan_core.engine.independence import check_independence
from tan_core.engine.inputs import (
    Array,
    Inputs,
    Picked,
    as_indices,
    as_inputs,
)
from tan_core.engine.linear_classifier import linear_classifier, scores
from tan_core.engine.noise_ahead import NoiseAhead
from tan_core.engine.noisy_sum import AllReduce, NoisySum, Pieces
from tan_core.engine.optimizers import make_optimizer
from tan_core.engine.randomness import Randomness
from tan_core.engine.ranks import AGREED, check_ranks
from tan_core.engine.reading import Draw, Reader, Shown
from tan_core.engine.trace import Trace
from tan_core.engine.trainer_checks import (
    check_classes,
    check_data,
    check_kinds,
    check_privacy,
    check_state,
    check_weights,
    device_of,
)
from tan_core.engine.users import Users
from tan_core.engine.verdicts import check_once
from tan_core.errors import AuditError, ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.models.low_rank import merged
from tan_core.spec.schedules import scheduled_learning_rate
from tan_core.spec.train import Clipping, TrainerConfig
from tan_core.wire import UpdatePoint

STATE_VERSION: Final = 2
_EVALUATION_BATCH: Final = 512
_RARE_DEVIATIONS: Final = 6
"""Of the size of a draw above the expected one, and as many units: of few units a draw is more often far above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What a step may tell. The data-dependent fields are None in a private run: they have a price."""

    step: int
    """Steps taken so far, this one included."""
    num_drawn: int | None = None
    """Examples of the global draw."""
    train_loss: float | None = None
    """Mean over this rank's share of the draw; None when the share is empty."""
    clipped_fraction: float | None = None
    """Share of this rank's examples that were shortened, their norm being above the clipping norm; None also where the rule
    shortens none or scales them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """All that the next step depends on beside data and randomness. It holds no key and no seed."""

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]


class Trainer:
    """One rank of a DP-SGD run, private or simulated.

    Formal guarantees:

    * The draw has the mechanism's own ``sampling_rate`` and, where there is one, its cap.
    * Noise of standard deviation ``noise_multiplier * clip_norm`` is added once over all ranks, also
      to an empty draw. A private run adds it in float64, last, and rounds the noisy sum to float32 once.
    * The noisy sum is divided by the fixed expected batch size, never by the number drawn.
    * The first step, and one now and then, is audited: an example of it must have been clipped by the
      norm of the gradient that it has alone, by plain autograd (:mod:`~tan_core.engine.audit`).
    * No step changes a buffer of the model, which would hold examples without noise: that is looked at with each audit, and before
      weights are released. Frozen weights of a private run are looked at then, too.
    * It refuses to take more steps than the mechanism has.
    * ``torch.manual_seed`` and ``numpy.random.seed`` have no influence.
    * Threads wait for each other: one that evaluates, or takes a state or a copy, for the end of a step of another, and that for it.

    Args:
        model: reads [N, ...] in the type of its trained parameters and gives [N, classes]; passes
            :func:`~tan_core.engine.gradients.check_model`,
            :func:`~tan_core.engine.independence.check_independence` and
            :func:`~tan_core.engine.coverage.check_coverage` (in a simulation, once for an
            :func:`~tan_core.engine.verdicts.architecture`); its parameters become views of one vector
            and always hold the current (not the averaged) weights, so it is converted and laid out before and not
            after. What is frozen may be in another type, such as bfloat16, and takes its inputs in it from the
            model's forward.
        execution: what is executed; its mechanism is the one that is priced.
        config: optimiser, averaging, augmentation, and the precision of the passes through the model; the
            weights and all that is made of gradients are float32 in both. Its ``clip_norm`` must be the
            mechanism's.
        inputs: the whole training split, uint8 [N, C, H, W] or float [N, F], in memory or not; N is
            ``execution.num_examples``. Lists of numbers are taken for the array that NumPy makes of them.
        labels: [N], integers.
        randomness: equal on all ranks, as the model is.
        users: [N], whose each record is, by numbers from 0: then users are drawn and not records, a
            user's gradient is the mean over its records and is clipped once, and ``num_examples`` counts
            users. None: each record is a unit of its own.
        microbatch_size: views in memory at once.
        rank: of this process, in [0, world_size).
        world_size: processes that share every draw.
        all_reduce: sums a tensor over all ranks in place, or begins to and returns what can be waited for;
            needed when ``world_size`` > 1. It is given pieces of the sum, the same ones on every rank, in
            float64 where the run is private; at the first steps also what tells whether the ranks agree.
        device: where the model computes; the data stay in the processor's memory.

    Raises:
        ParameterError: the arguments do not fit each other; the message names the field.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        execution: PrivateRun | Simulation,
        config: TrainerConfig,
        inputs: Inputs,
        labels: Array,
        randomness: Randomness,
        users: Array | None = None,
        microbatch_size: int = 256,
        rank: int = 0,
        world_size: int = 1,
        all_reduce: AllReduce | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        check_kinds(model, execution, config, randomness, all_reduce)
        microbatch_size, rank, world_size = map(
            _validate.plain, (microbatch_size, rank, world_size)
        )
        _validate.positive_integer(microbatch_size=microbatch_size, world_size=world_size)
        _validate.in_range(0, world_size - 1, rank=rank)
        self._execution = execution
        self._mechanism = _mechanism_of(execution)
        self._config = config
        records, classes = as_inputs(inputs), as_indices(labels, field="labels")
        owners = None if users is None else Users(as_indices(users, field="users"))
        check_data(execution, records, classes, owners)
        check_privacy(execution, self._mechanism, config, randomness)
        if world_size > 1 and all_reduce is None:
            raise ParameterError(f"all_reduce is needed for {world_size} ranks", field="all_reduce")
        is_private = isinstance(execution, PrivateRun)
        place, shape = device_of(device), records.shape[1:]
        check_model(model)
        if is_private:
            check_independence(model, shape)
            check_coverage(model, shape, config.precision)
        else:
            check_once(model, shape, config.precision)
        check_classes(model, shape, classes, config=config, users=owners)
        self._randomness = randomness
        self._microbatch_size = microbatch_size
        self._rank, self._world_size, self._all_reduce = rank, world_size, all_reduce
        augmentation = Augmentation.of(
            tuple(shape),
            multiplicity=config.augmentation_multiplicity,
            crop_padding=config.crop_padding,
            horizontal_flip=config.horizontal_flip,
            color_jitter=config.color_jitter,
            dtype=records.dtype,
        )
        self._model = model.to(place)
        self._flat = FlatParameters(self._model)
        self._fixed = self._frozen if is_private else sketch_of_buffers(self._model)
        self._reader = Reader(
            inputs=records,
            labels=classes,
            users=owners,
            augmentation=augmentation,
            microbatch_size=microbatch_size,
            device=place,
            dtype=self._flat.vector.dtype,
        )
        self._pieces = Pieces([(name, math.prod(shape)) for name, shape in self._flat.layout])
        self._books = Books(self._model, config.precision)
        weights_O = class_weights(config)
        self._class_weights = None if weights_O is None else weights_O.to(place)
        self._ema = self._flat.vector.clone() if config.ema_decay else None
        self._optimizer = make_optimizer(config, self._flat.vector)
        self._noise_ahead = NoiseAhead() if place.type != "cpu" else None
        # The last bits that a noisy sum is told in must come from the noise alone.
        self._noise_type = torch.float64 if is_private else self._flat.vector.dtype
        self._told_type = torch.float32 if is_private else self._flat.vector.dtype
        self._trace = Trace(self._mechanism.steps) if is_private else None
        self.progressed: Callable[[], None] = _nobody
        """Called after each microbatch of a step, and each piece of an evaluation: a sign of life."""
        self._steps_done = 0
        self._next_audit = 0
        self._agreed = 0
        self._alone = RLock()

    @cached_property
    def _frozen(self) -> Sketch:
        """Of what no step changes: once, for it takes a second for a hundred million numbers on a processor."""
        return sketch(self._model)

    @property
    def _scored_at_once(self) -> int:
        """Records; without gradients they take far less memory than as many views of a step."""
        return min(_EVALUATION_BATCH, 4 * self._microbatch_size)

    @property
    def _most_drawn(self) -> int:
        """Units that this rank may have to read of one draw: more are not there, above the cap, or drawn in hardly any run."""
        expected = self._execution.expected_batch_size
        most = min(
            self._execution.num_examples,
            self._mechanism.max_batch_size or math.inf,
            math.ceil(expected + _RARE_DEVIATIONS * (math.sqrt(expected) + 1)),
        )
        return max(1, math.ceil(most / self._world_size))

    @property
    def steps_done(self) -> int:
        """Steps taken, those before a checkpoint included."""
        return self._steps_done

    @property
    def mechanism(self) -> Mechanism:
        """What a step executes."""
        return self._mechanism

    @property
    def updates(self) -> list[UpdatePoint]:
        """What a private run's noisy gradients looked like so far; empty for a simulation."""
        return [] if self._trace is None else self._trace.points

    @property
    def released(self) -> Tensor:
        """[P], to be read only: the weights that would be published, averaged where averaging is on."""
        return self._flat.vector if self._ema is None else self._ema

    @property
    def is_diverged(self) -> bool:
        """Whether a parameter is no longer a finite number."""
        return is_diverged(self._flat.vector)

    @torch.no_grad()
    def rehearse(self, *, num_scored: int = 0) -> None:
        """Compute as much at once as a step, its audit and an evaluation may have to, of random records, and forget it.

        What does not fit into memory, or fails on so many examples, ends here, before a private run is charged for a
        step. Neither the data are read nor the run's randomness; nothing that a step depends on changes.

        Args:
            num_scored: records of the largest split that :meth:`evaluate` will be given.

        Raises:
            AuditError: in so large a batch the model mixes examples, or writes to its buffers.
            RuntimeError: memory is short, or as of :meth:`step`.
        """
        with self._alone:
            generator = torch.Generator().manual_seed(0)
            shown = self._reader.made_up(self._most_drawn, generator)
            # A step has the sum and its noise beside the model.
            noise_P = torch.zeros_like(self._flat.vector, dtype=self._noise_type)
            found = self._sum_of(shown, torch.zeros_like(self._flat.vector))
            noise_P.add_(found.sum)
            self._check_one(shown, found.norms[:1])
            self.progressed()
            if num_scored > 0:
                num = min(num_scored, self._scored_at_once)
                with self._books.closed():
                    self._predictions(self._reader.random_records(num, generator))
                self.progressed()

    @torch.no_grad()
    def step(self) -> StepStats:
        """Take one step on the global draw; an empty draw is a step of noise only.

        Raises:
            ParameterError: all steps are taken, the model has other parameters than when the trainer was made, or ranks draw unlike batches or have unlike models.
            RuntimeError: torch is set to compute without gradients, or in lower precision.
        """
        with self._alone:
            if self._steps_done >= self._mechanism.steps:
                raise ParameterError(
                    f"the mechanism has {self._mechanism.steps} steps and all are taken",
                    field="steps",
                )
            # Before anything is drawn: what a private run has drawn it never draws again.
            self._flat.check(self._model)
            self._books.check_modes()
            drawn = self._draw()
            self._check_ranks(drawn)
            noisy_sum, stats = self._noisy_sum(drawn)
            divisor = self._mechanism.clip_norm * self._execution.expected_batch_size
            gradient = noisy_sum.div_(divisor)
            if self._trace is not None:
                self._trace.note(self._steps_done, gradient, self._flat.vector, self._ema)
            self._optimizer.update(
                self._flat.vector,
                gradient,
                learning_rate=scheduled_learning_rate(
                    self._config, step=self._steps_done, steps=self._mechanism.steps
                ),
                step=self._steps_done,
            )
            self._average()
            self._steps_done += 1
            return stats

    def evaluate(self, inputs: Inputs, labels: Array, *, weights: Tensor | None = None) -> float:
        """Accuracy in [0, 1] on a split, with the :attr:`released` weights or the given ones.

        NOTE: it is not private. What is told of a private split, or chosen by it, no epsilon covers.

        Args:
            inputs: [N, ...], records as the model was trained on.
            labels: [N], integers.
            weights: [P], as :attr:`released`; the model is left with its own.

        Raises:
            ParameterError: the split is empty, an argument does not fit the others or the model, or the model has
                other parameters than when the trainer was made.
        """
        return int(self.hits(inputs, labels, weights=weights).sum()) / len(labels)

    def hits(self, inputs: Inputs, labels: Array, *, weights: Tensor | None = None) -> Tensor:
        """[N], bool: which records of a split are told right, by the weights of :meth:`evaluate`."""
        read = as_inputs(inputs)
        if len(read) == 0:
            raise ParameterError("cannot evaluate on an empty split", field="inputs")
        labels = as_indices(labels, field="labels", num=len(read))
        hits: list[Tensor] = []
        used = self.released if weights is None else weights
        check_weights(used, self._flat.vector)
        self._flat.check(self._model)
        classifier = linear_classifier(self._model)
        rows = torch.arange(len(labels))
        # Not torch.inference_mode: what a layer keeps of this run, such as a mask, could not be read in a step.
        with self._alone, torch.no_grad(), self._in_place(used), self._books.closed():
            for start in range(0, len(labels), self._scored_at_once):
                chunk, found = slice(start, start + self._scored_at_once), None
                if classifier is not None and isinstance(read, Tensor):
                    found = scores(classifier, Picked(read, rows[chunk]))
                if found is None:
                    found = self._predictions(read[chunk])
                hits.append(found.argmax(1).cpu() == labels[chunk])
                self.progressed()
        return torch.cat(hits)

    def _predictions(self, records: Tensor) -> Tensor:
        """[B, classes]: what the model says of records, which may be of another shape than it was trained on."""
        read = self._reader.as_read(records)
        if read.data_ptr() == records.data_ptr():
            read = read.clone()  # a layer may work in place on what it reads
        try:
            return self._books.predictions(read)
        except RuntimeError as error:
            trained_on, given = list(self._reader.shape), list(records.shape[1:])
            if given == trained_on:
                raise
            raise ParameterError(
                f"the model does not run on records of shape {given}: {error}; accepted: {trained_on}, as it "
                "was trained on",
                field="inputs",
            ) from error

    @contextmanager
    def _in_place(self, weights_P: Tensor) -> Generator[None]:
        """While the block runs the model has these weights."""
        if weights_P is self._flat.vector:
            yield
            return
        current_P = self._flat.vector.clone()
        self._flat.vector.copy_(weights_P)
        try:
            yield
        finally:
            self._flat.vector.copy_(current_P)

    def released_weights(self, weights_P: Tensor | None = None) -> dict[str, Tensor]:
        """A copy of what is published, by parameter name: averaged weights where averaging is on.

        Low-rank factors are in the weights of their layers: what is published is a model without them.

        Args:
            weights_P: in the place of :attr:`released`.

        Raises:
            ParameterError: they are of another shape.
            AuditError: a buffer of the model is no longer what it was, or a frozen weight of a private run.
        """
        chosen = self.released if weights_P is None else weights_P
        check_weights(chosen, self._flat.vector)
        with self._alone:
            is_private = isinstance(self._execution, PrivateRun)
            self._check_fixed(sketch if is_private else sketch_of_buffers)
            weights = {name: value.detach() for name, value in self._model.state_dict().items()}
            released = self._flat.views(chosen)
            # A shared parameter has several names in the model and one in the vector.
            first_names = {p: name for name, p in self._model.named_parameters()}
            for name, parameter in self._model.named_parameters(remove_duplicate=False):
                if parameter.requires_grad:
                    weights[name] = released[first_names[parameter]]
            weights = merged(self._model, weights)
            return {
                name: value.to("cpu", copy=True).contiguous() for name, value in weights.items()
            }

    def trained_weights(self, weights_P: Tensor) -> dict[str, Tensor]:
        """A copy of weights such as :attr:`released`, by the names of the parameters that are trained.

        Raises:
            ParameterError: they are of another shape.
        """
        check_weights(weights_P, self._flat.vector)
        return {
            name: value.to("cpu", copy=True).contiguous()
            for name, value in self._flat.views(weights_P).items()
        }

    def __getstate__(self) -> dict[str, Any]:
        """For a copy, here or elsewhere: what stands for parameters or holds on to them is made anew there.

        Raises:
            TypeError: a private run has no copy, which would add the same noise to other gradients.
        """
        if isinstance(self._execution, PrivateRun):
            raise TypeError(
                "a private run is never copied or pickled: a copy would draw the same noise again; save a "
                "checkpoint and go on with another attempt"
            )
        with self._alone:
            model = copy.deepcopy(self._model)
            for parameter in model.parameters():
                # Of a view of the vector all of the vector would be written.
                parameter.data = parameter.data.clone()
            state = {**vars(self), "_model": model, "progressed": _nobody}
            # What a step writes to is one's own, also in a copy that shares all else.
            state |= {name: copy.deepcopy(state[name]) for name in ("_ema", "_optimizer")}
        del state["_flat"], state["_books"], state["_alone"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._flat = FlatParameters(self._model)
        self._books = Books(self._model, self._config.precision)
        self._alone = RLock()

    def state(self) -> TrainerState:
        """A copy of everything the next step depends on beside data and randomness."""
        with self._alone:
            tensors = {n: value.to("cpu", copy=True) for n, value in self._tensors().items()}
            meta = {**self._identity(), "step": self._steps_done, "frozen": self._frozen}
            if self._trace is not None:
                meta["updates"] = self._trace.state()
        return TrainerState(tensors=tensors, meta=meta)

    def load_state(self, state: TrainerState) -> None:
        """Go on from ``state``, which must be of this very mechanism, configuration and model, what is frozen included.

        NOTE: a private run goes on with the next attempt of its key, or with a new key. Steps that were begun
        after ``state`` were taken and cost their epsilon; the same attempt would add the very noise of them to
        other gradients, whose difference would then be plain.

        Raises:
            ParameterError: it is not; the message names what differs.
        """
        _validate.instance(TrainerState, state=state)
        for key, expected in self._identity().items():
            found = state.meta.get(key)
            if key == "config" and isinstance(found, dict):
                # A field that is younger than the checkpoint was at its default.
                found = {**TrainerConfig().model_dump(mode="json"), **found}
            if found != expected:
                raise ParameterError(
                    f"the checkpoint is of another run: its {key} is {found!r}, "
                    f"expected {expected!r}",
                    field=key,
                )
        tensors = self._tensors()
        if set(state.tensors) != set(tensors):
            raise ParameterError(
                f"the checkpoint holds {sorted(state.tensors)}, expected {sorted(tensors)}",
                field="tensors",
            )
        check_state(state.tensors, state.meta, like=tensors, steps=self._mechanism.steps)
        if "frozen" in state.meta:  # an older one has none
            check_sketch(state.meta["frozen"], self._frozen)
        with self._alone:
            if self._trace is not None:
                self._trace.load_state(state.meta.get("updates", []))  # an older one has none
            for name, tensor in tensors.items():
                tensor.copy_(state.tensors[name])
            self._steps_done = state.meta["step"]
            self._agreed = self._next_audit = 0

    def _draw(self) -> NDArray[np.int64]:
        """Rising indices of the step's batch over the whole data; the same on every rank."""
        drawn = self._randomness.mask(
            self._steps_done,
            num_examples=self._execution.num_examples,
            sampling_rate=self._mechanism.sampling_rate,
        )
        cap = self._mechanism.max_batch_size
        if cap is None:
            return drawn
        return self._randomness.cut(self._steps_done, drawn, max_batch_size=cap)

    def _check_ranks(self, drawn: NDArray[np.int64]) -> None:
        """At the first steps, and those after a checkpoint: until no chance could make unlike draws the same."""
        if self._world_size == 1 or self._all_reduce is None or self._agreed >= AGREED:
            return
        check_ranks(
            self._all_reduce,
            drawn,
            step=self._steps_done,
            rank=self._rank,
            world_size=self._world_size,
            weights=numbers_of([*self._model.parameters(), *self._model.buffers()]),
            device=self._flat.vector.device,
        )
        others = self._execution.num_examples - len(drawn)
        is_whole = self._mechanism.sampling_rate == 1
        self._agreed += AGREED if is_whole else min(len(drawn), others)

    def _noisy_sum(self, drawn: NDArray[np.int64]) -> tuple[Tensor, StepStats]:
        """The clipped sum over all ranks and its noise, [P], and the step's stats."""
        draw = self._reader.draw(
            torch.from_numpy(drawn), lambda: self._randomness.augmentation(self._steps_done)
        )
        if self._noise_ahead is not None:
            self._noise_ahead.begin(partial(self._noise, self._steps_done))
        share = torch.from_numpy(drawn[self._rank :: self._world_size]).contiguous()
        losses: list[Tensor] = []
        norms: list[Tensor] = []
        total_P: Tensor | None = None
        noisy: NoisySum | None = None
        is_audited = self._steps_done >= self._next_audit
        sends_early = self._all_reduce is not None and not is_audited
        pieces = list(self._reader.pieces(share))
        for following, units in enumerate(pieces, start=1):
            shown = self._reader.shown(units, draw)
            if following < len(pieces):
                self._reader.expect(pieces[following])
            if sends_early and following == len(pieces):
                # What the last piece makes final is sent at once, with its noise.
                total_P = self._whole(total_P)
                noisy = self._with_noise(total_P)
            part = self._sum_of(shown, total_P, None if noisy is None else noisy.ready)
            total_P = part.sum
            losses.append(part.losses)
            norms.append(part.norms)
            self.progressed()
        if norms and is_audited:
            self._audit(torch.cat(pieces), draw, torch.cat(norms))
        total_P = self._whole(total_P)
        if self._noise_ahead is None and self._all_reduce is None:
            self._add_own_noise(self._steps_done, total_P)
            total_P.copy_(total_P.to(self._told_type))
        else:
            (noisy or self._with_noise(total_P)).finish()
        return total_P, self._stats(len(drawn), losses, norms)

    def _sum_of(
        self,
        shown: Shown[Tensor] | Shown[Picked],
        onto: Tensor | None,
        final: Callable[[str], object] | None = None,
    ) -> ClippedSum:
        return clipped_sum(
            self._books,
            shown.inputs,
            shown.labels,
            clip_norm=self._mechanism.clip_norm,
            views=shown.views,
            shares=shown.shares,
            microbatch_size=self._microbatch_size,
            rule=clipping_rule(self._config),
            weights=None if self._class_weights is None else self._class_weights[shown.labels],
            onto=onto,
            final=final,
        )

    def _whole(self, total_P: Tensor | None) -> Tensor:
        """What is summed so far; zeros where nothing is."""
        return torch.zeros_like(self._flat.vector) if total_P is None else total_P

    def _audit(self, share: Tensor, draw: Draw, norms: Tensor) -> None:
        """A second opinion on one unit of this rank's share, before anything is made of the sum."""
        at = self._steps_done % len(share)
        one = slice(at, at + 1)
        self._check_one(self._reader.gathered(share[one], draw), norms[one])
        self._next_audit = self._steps_done + steps_between_audits(self._mechanism.steps)

    def _check_one(self, shown: Shown[Tensor], norms: Tensor) -> None:
        """Of the first units shown, as many as have their norms here, and of what the model must not have changed."""
        audit(
            self._model,
            shown.inputs,
            shown.labels[: len(norms)],
            norms,
            clip_norm=self._mechanism.clip_norm,
            views=shown.views,
            shares=shown.shares,
            rule=clipping_rule(self._config),
            precision=self._config.precision,
        )
        self._check_fixed(sketch_of_buffers)

    def _check_fixed(self, found: Callable[[nn.Module], Sketch]) -> None:
        """What a model does under a condition that no check before the run meets, such as a large batch, shows here."""
        name = changed(self._fixed, found(self._model))
        if name is not None:
            raise AuditError(
                f"an audit failed: {name!r} of the model, which is not trained, is no longer what it was. What runs write there is made of "
                "examples, without clipping and noise, moves the gradients of others, and would be released with the weights; accepted: a "
                "model that leaves its buffers and what is frozen as they are, in batches of any size"
            )

    def _stats(self, num_drawn: int, losses: list[Tensor], norms: list[Tensor]) -> StepStats:
        step = self._steps_done + 1
        if isinstance(self._execution, PrivateRun):
            return StepStats(step=step)
        if not losses:
            return StepStats(step=step, num_drawn=num_drawn)
        size = sum(len(part) for part in losses)
        clipped_fraction = None
        if self._config.clipping is Clipping.PER_EXAMPLE:
            num_clipped = sum(int((part > self._mechanism.clip_norm).sum()) for part in norms)
            clipped_fraction = num_clipped / size
        return StepStats(
            step=step,
            num_drawn=num_drawn,
            train_loss=sum(float(part.sum()) for part in losses) / size,
            clipped_fraction=clipped_fraction,
        )

    def _with_noise(self, total_P: Tensor) -> NoisySum:
        """The noisy sum of all ranks, to be finished; gradients may still be added."""

        def noise() -> Tensor:
            ahead = self._noise_ahead
            noise_P = self._noise(self._steps_done) if ahead is None else ahead.take()
            return noise_P.to(total_P.device, non_blocking=True)

        return NoisySum(
            total_P,
            noise,
            self._pieces,
            self._all_reduce,
            rounded_to=self._told_type,
        )

    def _noise(self, step: int) -> Tensor:
        """[P], on the CPU: this rank's share of a step's noise, and zeros."""
        vector = self._flat.vector
        noise_P = torch.zeros(vector.shape, dtype=self._noise_type, pin_memory=vector.is_cuda)
        self._add_own_noise(step, noise_P)
        return noise_P

    def _add_own_noise(self, step: int, total_P: Tensor) -> None:
        """This rank's share of it: with the others', once to every parameter."""
        deviation = self._mechanism.noise_multiplier * self._mechanism.clip_norm
        share, shares = self._rank, self._world_size
        self._randomness.add_noise(step, total_P, deviation, share=share, shares=shares)

    def _average(self) -> None:
        if self._ema is not None:
            decay, step = self._config.ema_decay, self._steps_done
            average(self._ema, self._flat.vector, decay=decay, step=step)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {"parameters": self._flat.vector}
        if self._ema is not None:
            tensors["ema"] = self._ema
        return tensors | {f"optimizer.{k}": v for k, v in self._optimizer.state().items()}

    def _identity(self) -> dict[str, Any]:
        """What must agree between a checkpoint and the trainer that goes on from it; JSON."""
        return {
            "version": STATE_VERSION,
            "execution": type(self._execution).__name__,
            "fingerprint": self._mechanism.fingerprint,
            "num_examples": self._execution.num_examples,
            "config": self._config.model_dump(mode="json"),
            "layout": [[name, list(shape)] for name, shape in self._flat.layout],
        }


def _nobody() -> None:
    """Nobody waits for signs of life."""


def _mechanism_of(execution: PrivateRun | Simulation) -> Mechanism:
    return execution.mechanism if isinstance(execution, PrivateRun) else execution.dynamics
