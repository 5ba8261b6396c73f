"""Faults seeded into what private runs execute: the privacy self-test must find each one.

``python -m tests.privacy_faults`` applies them one at a time. A fault is a change of the text
of real functions; what else guards the same place is switched off with it where it would refuse the
run before the self-test could measure it.
"""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any


class StaleFaultError(Exception):
    """The function no longer has the text that a fault replaces."""


@dataclass(frozen=True)
class Edit:
    """In the source of ``function`` of ``module``, ``old`` becomes ``new``."""

    module: str
    function: str
    old: str
    new: str

    @property
    def target(self) -> FunctionType:
        """The function itself, below what decorates it."""
        return inspect.unwrap(attrgetter(self.function)(import_module(self.module)))

    def applied(self, source: str) -> str:
        """The changed text."""
        if source.count(self.old) != 1:
            raise StaleFaultError(f"{self.module}.{self.function} has no single {self.old!r}")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Fault:
    """What is wrong, by which edits, and the finding that is there for it."""

    name: str
    finding: str
    edits: tuple[Edit, ...]
    checks: tuple[str, ...] = ()
    """What pytest runs of the self-test, for all of it would take too long; nothing: pytest leaves it out."""

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """While the block runs each function has the code of its changed text, wherever it is imported."""
        texts: dict[FunctionType, str] = {}
        for edit in self.edits:
            function = edit.target
            text = texts.get(function) or _source(function)
            texts[function] = edit.applied(text)
        codes = {function: function.__code__ for function in texts}
        try:
            for function, text in texts.items():
                function.__code__ = _compiled(function, text)
            yield
        finally:
            for function, code in codes.items():
                function.__code__ = code


def _source(function: FunctionType) -> str:
    """Without what decorates it."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if line.startswith("def "))
    return "".join(lines[first:])


def _compiled(function: FunctionType, text: str) -> CodeType:
    names: dict[str, Any] = {}
    exec(
        compile(text, f"<a fault in {function.__qualname__}>", "exec"), function.__globals__, names
    )
    return names[function.__name__].__code__


TRAINER = "tan_core.engine.trainer"
GRADIENTS = "tan_core.engine.gradients"

NO_AUDIT = Edit(
    TRAINER,
    "Trainer._noisy_sum",
    "if norms and is_audited:",
    "if False:",
)
DRAW = """drawn = self._randomness.mask(
        self._steps_done,
        num_examples=self._execution.num_examples,
        sampling_rate=self._mechanism.sampling_rate,
    )"""
FEW_DIGITS = """for piece, noise in zip(pieces, _box_muller(radii, angles).float()):
            piece.add_(noise[: len(piece)], alpha=deviation)"""
WHOSE = "share, shares = self._rank, self._world_size"
SHUFFLED = """size = max(1, round(self._execution.expected_batch_size))
    epoch, at = divmod(self._steps_done, self._execution.num_examples // size)
    order = np.random.default_rng(epoch).permutation(self._execution.num_examples)
    drawn = np.sort(order[at * size : (at + 1) * size])"""

FAULTS = (
    Fault(
        "no noise", "noise.one_rank",
        (Edit(TRAINER, "Trainer._add_own_noise", "deviation = ", "deviation = 0.0 * "),),
        checks=("noise",),
    ),
    Fault(
        "half noise", "noise.one_rank",
        (Edit(TRAINER, "Trainer._add_own_noise", "deviation = ", "deviation = 0.5 * "),),
        checks=("noise",),
    ),
    Fault(
        "noise per rank", "noise.two_ranks",
        (Edit(TRAINER, "Trainer._add_own_noise", WHOSE, "share, shares = 0, 1"),),
        checks=("noise",),
    ),
    Fault(
        "every rank adds the same share of the noise", "noise.two_ranks",
        (Edit(TRAINER, "Trainer._add_own_noise", WHOSE, "share, shares = 0, self._world_size"),),
        checks=("noise",),
    ),
    Fault(
        "noise of as few digits as the sum", "noise.low_bits.one_rank",
        (
            Edit("tan_core.engine.randomness", "PrivateRandomness.add_noise",
                 "_add_box_muller(radii, angles, deviation, *pieces)", FEW_DIGITS),
        ),
        checks=("noise.low_bits",),
    ),
    Fault(
        "ranks add up in as few digits as is told", "noise.low_bits.two_ranks",
        (Edit(TRAINER, "Trainer._noise", "self._noise_type", "torch.float32"),),
        checks=("noise.low_bits",),
    ),
    Fault(
        "every rank adds the whole batch", "mechanism.contribution",
        (Edit(TRAINER, "Trainer._noisy_sum", "drawn[self._rank :: self._world_size]", "drawn"),),
        checks=("mechanism",),
    ),
    Fault(
        "no clipping", "sensitivity.linear",
        (
            Edit(
                "tan_core.engine.clipping", "per_example_clipping",
                "(clip_norm / norms_B).clamp_max(1)", "torch.ones_like(norms_B)",
            ),
            Edit(GRADIENTS, "_of_linear_classifier", "clip_norm=clip_norm", "clip_norm=1e30"),
        ),
        checks=("sensitivity.views",),
    ),
    Fault(
        "clip after averaging over the batch", "sensitivity.mlp",
        (
            Edit(
                GRADIENTS, "clipped_sum", "rule(batch.norms, clip_norm)",
                "rule((books.joined(batch.weighted_sum(torch.ones_like(batch.losses))).norm()"
                " / len(kept_labels)).expand(len(kept_labels)), clip_norm)",
            ),
        ),
        checks=("sensitivity.views",),
    ),
    Fault(
        "features relative to the records beside them", "sensitivity.features.whitened",
        (Edit("tan_core.models.whitening", "_normalized",
              "return functional.group_norm(extractor(images), WHITENED_GROUPS)",
              "found = functional.group_norm(extractor(images), WHITENED_GROUPS)\n    return found - found.mean(0)"),),
        checks=("sensitivity.features",),
    ),
    Fault(
        "views clipped one by one", "sensitivity.views",
        (
            NO_AUDIT,
            Edit(
                GRADIENTS, "clipped_sum", "books = model",
                "labels, views = labels.repeat_interleave(views), 1\n    books = model",
            ),
        ),
        checks=("sensitivity.views",),
    ),
    Fault(
        "rare classes weighed up", "sensitivity.classes",
        (
            Edit("tan_core.engine.clipping", "class_weights", "shares_O.min()", "shares_O.max()"),
            Edit(GRADIENTS, "_check_weights", "if weights is None:", "if True:"),
        ),
        checks=("sensitivity.classes",),
    ),
    Fault(
        "q of 1 / ceil(N / B)", "sampler.rate",
        (
            Edit(
                TRAINER, "Trainer._draw", "sampling_rate=self._mechanism.sampling_rate",
                "sampling_rate=1 / -(-self._execution.num_examples // self._execution.expected_batch_size)",
            ),
        ),
        checks=("sampler",),
    ),
    Fault(
        "shuffled batches", "sampler.steps",
        (Edit(TRAINER, "Trainer._draw", DRAW, SHUFFLED),),
        checks=("sampler",),
    ),
    Fault(
        "the same noise after a crash", "attempts.noise",
        (
            Edit("worker.train_loop", "Team.shared_secret", "os.urandom(num_bytes)",
                 "bytes(range(num_bytes))"),
            Edit("tan_core.engine.randomness", "PrivateRandomness._opened", "self._attempt, step",
                 "1 if purpose == 'noise' else self._attempt, step"),
        ),
        checks=("attempts",),
    ),
    Fault(
        "division by the drawn batch", "mechanism.contribution",
        (
            Edit(TRAINER, "Trainer.step", "self._execution.expected_batch_size", "max(1, len(drawn))"),
        ),
        checks=("mechanism",),
    ),
    Fault(
        "BatchNorm let through", "sensitivity.batch_norm",
        (
            Edit("tan_core.engine.check", "_reasons", "isinstance(layer, BATCH_NORMS)", "False"),
            Edit("tan_core.engine.independence", "check_independence",
                 "_differ(once[0], beside[0]) or _mixes_elsewhere(probe, random, pairs, cotangents)",
                 "False"),
            Edit("tan_core.engine.coverage", "check_coverage",
                 "hidden is not None and _is_hidden_in_float64(probe, inputs)", "False"),
            NO_AUDIT,
        ),
        checks=("sensitivity.mixing",),
    ),
    Fault(
        "the number of the attempt is no part of the key", "attempts.noise",
        (
            Edit("tan_core.engine.randomness", "PrivateRandomness._opened", "self._attempt, step",
                 "1, step"),
        ),
        checks=("attempts",),
    ),
    Fault(
        "a key that is not fresh", "attempts.noise",
        (
            Edit("worker.train_loop", "Team.shared_secret", "os.urandom(num_bytes)",
                 "bytes(range(num_bytes))"),
        ),
    ),
    Fault(
        "one noise in all steps", "attempts.noise",
        (
            Edit("tan_core.engine.randomness", "PrivateRandomness._opened", "self._attempt, step",
                 "self._attempt, 0 if purpose == 'noise' else step"),
        ),
        checks=("attempts",),
    ),
    Fault(
        "a tenth more than the clipping norm", "mechanism.contribution",
        (
            Edit("tan_core.engine.clipping", "per_example_clipping", "clip_norm / norms_B",
                 "1.1 * clip_norm / norms_B"),
            Edit(GRADIENTS, "_of_linear_classifier", "clip_norm=clip_norm",
                 "clip_norm=1.1 * clip_norm"),
            NO_AUDIT,
        ),
        checks=("mechanism",),
    ),
    Fault(
        "a cut that keeps the first of the draw", "sampler.cap.members",
        (
            Edit("tan_core.engine.randomness", "_part",
                 "drawn[np.argpartition(words, max_batch_size)[:max_batch_size]]",
                 "drawn[:max_batch_size]"),
        ),
        checks=("sampler.cap",),
    ),
    Fault(
        "a step more than is priced", "mechanism.steps",
        (
            Edit(TRAINER, "Trainer.step", "self._steps_done >= self._mechanism.steps",
                 "self._steps_done > self._mechanism.steps"),
            Edit(TRAINER, "Trainer.step", "self._config, step=self._steps_done", "self._config, step=0"),
        ),
        checks=("mechanism",),
    ),
)  # fmt: skip

CHARGED = "worker.charged"

TRIAL_FAULTS = (
    Fault(
        "a step of a trial before its charge", "test_it_is_charged_whole_before_its_first_step",
        (Edit(CHARGED, "ChargedRun.__init__", "if charge(", "self._trainer.step()\n    if charge("),),
    ),
    Fault(
        "a trial runs whatever is granted", "test_where_less_is_granted_nothing_runs",
        (Edit(CHARGED, "ChargedRun.__init__", "raise NotChargedError(USED_UP)", "pass"),),
    ),
    Fault(
        "a trial at the noise of another mechanism",
        "test_what_runs_is_the_mechanism_that_was_charged_with_noise_of_its_own",
        (Edit(CHARGED, "ChargedRun.__init__", "charged.mechanism.event", "assignment.reference.event"),),
    ),
    Fault(
        "one key for all trials",
        "test_two_trials_of_one_choice_share_neither_draws_nor_noise_nor_weights",
        (Edit(CHARGED, "ChargedRun.__init__", "os.urandom(KEY_BYTES)", "bytes(KEY_BYTES)"),),
    ),
    Fault(
        "a score without noise", "test_the_noise_on_a_score_is_what_was_charged",
        (Edit(CHARGED, "ChargedRun._noisy_accuracy", "self._noise * float(draw[0])", "0"),),
    ),
    Fault(
        "a score with half of its noise", "test_the_noise_on_a_score_is_what_was_charged",
        (Edit(CHARGED, "ChargedRun._noisy_accuracy", "self._noise *", "0.5 * self._noise *"),),
    ),
    Fault(
        "a score to its last digit", "test_the_digits_of_a_score_do_not_tell_the_count",
        (
            Edit(CHARGED, "ChargedRun._noisy_accuracy", "round(noisy * _GRAINS)", "noisy * _GRAINS"),
            Edit(CHARGED, "ChargedRun._noisy_accuracy", "float(draw[0])", "float(draw[0].float())"),
        ),
    ),
    Fault(
        "a score that counts records where users are protected",
        "test_a_score_of_users_is_the_mean_of_what_is_right_of_each",
        (Edit(CHARGED, "ChargedRun._noisy_accuracy", "self._data.validation_users", "None"),),
    ),
    Fault(
        "a score in which a rare class counts more than one", "test_of_a_balanced_score_no_record_counts_more_than_one",
        (Edit("worker.metric", "alike", "shares_O.min()", "shares_O.max()"),),
    ),
    Fault(
        "a score relative to how many records each class has",
        "test_a_balanced_score_is_a_part_of_what_is_stated_and_not_of_what_is_there",
        (Edit(CHARGED, "ChargedRun._noisy_accuracy", "_GRAINS * whole", "_GRAINS * float((counts if counts is not None else told + 1).sum())"),),
    ),
    Fault(
        "users whose records nobody knows",
        "test_a_score_of_users_is_refused_where_nobody_knows_whose_records_they_are",
        (Edit(CHARGED, "ChargedRun.__init__", "assignment.dataset.unit != RECORD and", "False and"),),
    ),
    Fault(
        "a look at the records on the way", "test_neither_losses_nor_accuracies_decide_whether_it_goes_on",
        (Edit(CHARGED, "ChargedRun.advance", "if trainer.steps_done == steps and", "if"),),
    ),
    Fault(
        "a trial tells its loss", "test_all_that_is_told_is_the_score",
        (
            Edit(TRAINER, "Trainer._stats", "isinstance(self._execution, PrivateRun)", "False"),
            Edit(CHARGED, "ChargedRun.advance", "trainer.step()", "self._told = trainer.step().train_loss"),
            Edit(CHARGED, "ChargedRun.score.fget", "seconds=self._seconds", "seconds=self._seconds, train_loss=getattr(self, '_told', None)"),
        ),
    ),
    Fault(
        "a trial tells how many of its gradients were clipped", "test_all_that_is_told_is_the_score",
        (
            Edit(TRAINER, "Trainer._stats", "isinstance(self._execution, PrivateRun)", "False"),
            Edit(CHARGED, "ChargedRun.advance", "trainer.step()", "self._told = trainer.step().clipped_fraction"),
            Edit(CHARGED, "ChargedRun.score.fget", "seconds=self._seconds", "seconds=self._seconds, clipped_fraction=getattr(self, '_told', None)"),
        ),
    ),
)  # fmt: skip
"""Of trials that are charged; ``finding`` is the test of ``tests/unit/worker/test_charged.py`` that is there for each."""

STATEMENT_FAULTS = (
    Fault(
        "a statement without the scores", "test_epsilon_is_of_run_trials_and_scores_by_the_opacus_accountant_too",
        (
            Edit("service.statements.statement", "build", "*charge.search]", "*charge.search[:1]]"),
            Edit("service.statements.statement", "_mechanisms", "strict=True", "strict=False"),
        ),
    ),
)  # fmt: skip
"""Of what is said of them; ``finding`` is the test of ``tests/unit/service/statements/test_statement.py``."""
