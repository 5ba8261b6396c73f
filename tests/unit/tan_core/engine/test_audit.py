"""The audit lets good models pass and finds what no rule about layers can see."""

import doctest
import math
from functools import partial, reduce
from importlib import import_module

import pytest
import torch
from torch import nn

from tan_core import models
from tan_core.engine import audit as module
from tan_core.engine import bookkeeping, clipped_sum, native
from tan_core.engine.audit import TOLERANCE, audit, differences, steps_between_audits
from tan_core.engine.bookkeeping import Books
from tan_core.engine.clipping import automatic_clipping, no_clipping, per_example_clipping
from tan_core.engine.layers import LayerGradients
from tan_core.errors import AuditError
from tan_core.execution import Simulation
from tan_core.spec.models import MODEL_TYPES
from tan_core.spec.train import Precision
from tests.unit.tan_core.engine.support import make_run, make_trainer, run, run_ranks

BFLOAT16 = Precision.BFLOAT16
SMALL = ("linear", "mlp", "tanh-cnn", "wrn-16-4")


class MixesLargeBatches(nn.Module):
    """No layer of its own, nothing to see in a batch of two, and yet no example is alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.sum(0) if len(x) > 4 else x


class KeepsAMean(nn.Module):
    """Of batches that no check before a run has, and so slowly that an example's norm alone is the same."""

    mean: torch.Tensor

    def __init__(self, *, weight: float = 1e-3, after: int = 0, is_parameter: bool = False) -> None:
        super().__init__()
        self.weight, self.batches_left = weight, after
        if is_parameter:
            self.mean = nn.Parameter(torch.ones(64), requires_grad=False)
        else:
            self.register_buffer("mean", torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = self.mean.clone()
        if len(x) > 4:
            self.batches_left -= 1
        if len(x) > 4 and self.batches_left < 0:
            self.mean.lerp_(x.abs().mean(0), self.weight)
        return x / mean


class UsesAWeightTwice(nn.Module):
    """Once by its layer, once behind its back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.layer.weight


def mixing_model(inputs: int = 4) -> nn.Module:
    """Equal weights every time: with some, what one example sees of the others is below the tolerance."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 4), MixesLargeBatches(), nn.Linear(4, 3))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1, generator=generator)
    return model


def keeping_model(**changes) -> nn.Module:
    return nn.Sequential(nn.Flatten(), KeepsAMean(**changes), nn.Linear(64, 3))


def make_batch(shape, examples: int = 6, views: int = 2):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples * views, *shape, generator=generator)
    return inputs, torch.randint(0, 3, (examples,), generator=generator)


def arguments(model: nn.Module, inputs, labels, *, clip_norm: float = 1.0, rule=None):
    rule = rule or per_example_clipping
    views = max(1, len(inputs) // max(1, len(labels)))
    settings = {"clip_norm": clip_norm, "views": views, "rule": rule}
    kept = clipped_sum(model, inputs, labels, **settings).norms
    return (model, inputs, labels, kept), settings


class TestAudit:
    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("name", SMALL)
    def test_a_registered_model_passes(self, name: str, views: int) -> None:
        generator = torch.Generator().manual_seed(0)
        model = models.build(
            MODEL_TYPES[name](), shape=(1, 8, 8), num_classes=3, generator=generator
        )

        given, settings = arguments(model, *make_batch((1, 8, 8), views=views))

        assert max(differences(*given, **settings)) < 1e-3

    @pytest.mark.slow
    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("name", SMALL)
    def test_in_bfloat16_too(self, name: str, views: int) -> None:
        generator = torch.Generator().manual_seed(0)
        model = models.build(
            MODEL_TYPES[name](), shape=(1, 8, 8), num_classes=3, generator=generator
        )
        inputs, labels = make_batch((1, 8, 8), views=views)
        settings = {"clip_norm": 1.0, "views": views}
        kept = clipped_sum(Books(model, BFLOAT16), inputs, labels, **settings).norms

        found = differences(model, inputs, labels, kept, precision=BFLOAT16, **settings)

        assert max(found) < TOLERANCE[BFLOAT16] / 4

    def test_in_bfloat16_a_model_that_mixes_is_caught(self) -> None:
        model, (inputs, labels) = mixing_model(), make_batch((4,))
        kept = clipped_sum(Books(model, BFLOAT16), inputs, labels, clip_norm=1.0, views=2).norms

        with pytest.raises(AuditError):
            audit(model, inputs, labels, kept, clip_norm=1.0, views=2, precision=BFLOAT16)

    @pytest.mark.parametrize("precision", Precision)
    def test_a_norm_that_is_a_little_less_than_what_it_bounds_is_caught(
        self, precision, monkeypatch
    ) -> None:
        """As one from a sum in lower precision would be, far within what a kink may move."""
        model, (inputs, labels) = nn.Linear(4, 3), make_batch((4,), views=1)
        kept = clipped_sum(Books(model, precision), inputs, labels, clip_norm=0.1).norms
        rightly = bookkeeping.layer_gradients

        def slightly_less(*of):
            found = rightly(*of)
            return LayerGradients(found.squared_norms * (1 - 4e-5), found.weighted_sum)

        # Two equal views: with one, the classifier's own kernel would be asked.
        given = (inputs.repeat_interleave(2, 0), labels, kept)
        settings = {"clip_norm": 0.1, "views": 2, "precision": precision}
        audit(model, *given, **settings)
        monkeypatch.setattr(bookkeeping, "layer_gradients", slightly_less)

        assert differences(model, *given, **settings) == [math.inf] * len(labels)

    @pytest.mark.parametrize(
        "rule",
        [per_example_clipping, partial(automatic_clipping, stability=0.01), no_clipping],
        ids=["per-example", "automatic", "none"],
    )
    @pytest.mark.parametrize("clip_norm", [1e-6, 1.0, 1e6])
    def test_every_rule_and_clipping_norm_passes(self, rule, clip_norm: float) -> None:
        given, settings = arguments(
            nn.Linear(4, 3), *make_batch((4,)), rule=rule, clip_norm=clip_norm
        )

        audit(*given, **settings)

    def test_a_model_that_mixes_behind_the_rules_is_caught(self) -> None:
        given, settings = arguments(mixing_model(), *make_batch((4,)))

        with pytest.raises(AuditError, match="mixes examples"):
            audit(*given, **settings)

    def test_a_weight_used_behind_its_layer_is_caught(self) -> None:
        model = UsesAWeightTwice()
        inputs, labels = make_batch((4,))
        alone = clipped_sum(model.layer, inputs, labels, clip_norm=1.0, views=2).norms

        with pytest.raises(AuditError):
            audit(model, inputs, labels, alone, clip_norm=1.0, views=2)

    @pytest.mark.parametrize(
        ("factor", "is_caught"), [(1.005, False), (0.995, False), (1.03, True), (0.97, True)]
    )
    def test_a_norm_is_caught_from_a_hundredth_on(self, factor: float, is_caught: bool) -> None:
        (*given, kept), settings = arguments(nn.Linear(4, 3), *make_batch((4,)))
        caught = False

        try:
            audit(*given, factor * kept, **settings)
        except AuditError:
            caught = True

        assert caught == is_caught

    def test_a_contribution_that_is_not_what_the_norm_says_is_caught(self, monkeypatch) -> None:
        """Norms may be right and the sum wrong: Opacus' ghost mode has it the other way round."""
        given, settings = arguments(nn.Linear(4, 3), *make_batch((4,)))
        right = module.clipped_sum

        def doubled(*arguments, **settings):
            found = right(*arguments, **settings)
            found.sum.mul_(2)
            return found

        monkeypatch.setattr(module, "clipped_sum", doubled)

        with pytest.raises(AuditError):
            audit(*given, **settings)

    def test_the_error_holds_no_figure_and_no_example(self) -> None:
        given, settings = arguments(mixing_model(), *make_batch((4,)))

        with pytest.raises(AuditError) as failed:
            audit(*given, **settings)

        assert not any(letter.isdigit() for letter in str(failed.value))
        assert failed.value.__cause__ is failed.value.__context__ is None

    @pytest.mark.parametrize("poison", [math.nan, math.inf])
    def test_an_example_that_clipping_leaves_out_passes(self, poison: float) -> None:
        inputs, labels = make_batch((4,), views=1)
        inputs[0] = poison

        given, settings = arguments(nn.Linear(4, 3), inputs, labels)

        audit(*given, **settings)

    def test_so_does_one_of_so_long_a_gradient_that_nothing_of_it_is_left(self) -> None:
        """Its norm is a number, and the weight that would shorten it no normal one any more."""
        model = nn.Linear(4, 2)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        inputs, labels = torch.full((1, 4), 1e38), torch.tensor([0])
        kept = clipped_sum(model, inputs, labels, clip_norm=1.0)

        assert kept.norms.isfinite().all()
        assert not kept.sum.any()
        assert differences(model, inputs, labels, kept.norms, clip_norm=1.0) == [0.0]

    def test_an_example_that_only_others_spoil_is_caught(self) -> None:
        """One example that is not a number must not take another out of the sum."""
        inputs, labels = make_batch((4,), views=1)
        inputs[0] = math.nan

        given, settings = arguments(mixing_model(), inputs, labels)

        with pytest.raises(AuditError):
            audit(*given, **settings)

    def test_a_gradient_of_mere_round_off_passes(self) -> None:
        """A sure and right answer: p - y is the last bit of 1, and differs with the batch size."""
        inputs, labels = make_batch((4,), views=1)
        (*given, kept), settings = arguments(nn.Linear(4, 3), 1e-5 * inputs, labels)
        with torch.no_grad():
            given[0].bias.copy_(torch.tensor([16.0, 0.0, 0.0]))

        audit(*given[:2], torch.zeros_like(labels), torch.zeros_like(kept), **settings)

    def test_millions_of_parameters_are_as_close_as_few(self, monkeypatch) -> None:
        """A sum of so many squares in float32 would be 2e-4 off, and eat into the tolerance."""
        monkeypatch.setattr("tan_core.engine.audit._ROUND_OFF", 0.0)
        model = nn.Sequential(nn.Linear(3000, 3000))
        inputs, labels = torch.randn(1, 3000), torch.tensor([0])
        kept = clipped_sum(model, inputs, labels, clip_norm=1.0).norms

        (found,) = differences(model, inputs, labels, kept, clip_norm=1.0)

        assert found < 1e-5

    @pytest.mark.parametrize(
        "name", ["fp32_precision", "cudnn.fp32_precision", "cudnn.conv.fp32_precision"]
    )
    def test_a_precision_that_torch_was_set_to_by_its_newer_names_is_known(self, name: str) -> None:
        *kinds, setting = name.split(".")
        kind = reduce(getattr, kinds, torch.backends)
        before = getattr(kind, setting)
        setattr(kind, setting, "ieee")
        try:
            run(make_trainer(), 1)
        finally:
            setattr(kind, setting, before)

    def test_no_example_passes(self) -> None:
        given, settings = arguments(nn.Linear(4, 3), *make_batch((4,), examples=0))

        assert differences(*given, **settings) == []

    def test_the_examples_in_its_docstrings_are_true(self) -> None:
        results = doctest.testmod(import_module("tan_core.engine.audit"))

        assert results.attempted == 5
        assert not results.failed


class TestInTheTrainer:
    @pytest.mark.parametrize("is_private", [True, False])
    def test_a_model_that_mixes_behind_the_rules_takes_no_step(self, is_private: bool) -> None:
        execution = make_run(q=0.5)
        if not is_private:
            execution = Simulation.of(execution, expected_batch_size=29)
        trainer = make_trainer(execution, model=mixing_model(64))
        before = trainer.state().tensors["parameters"]

        with pytest.raises(AuditError):
            trainer.step()

        assert trainer.steps_done == 0
        assert torch.equal(trainer.state().tensors["parameters"], before)

    @pytest.mark.parametrize("is_private", [True, False])
    def test_a_model_that_keeps_a_mean_of_its_batches_takes_no_step(self, is_private: bool) -> None:
        execution = make_run(q=0.5)
        if not is_private:
            execution = Simulation.of(execution, expected_batch_size=29)
        trainer = make_trainer(execution, model=keeping_model())

        with pytest.raises(AuditError, match=r"'1\.mean' of the model"):
            trainer.step()

        assert trainer.steps_done == 0

    @pytest.mark.parametrize(
        "kept", [{"after": 2}, {"is_parameter": True}], ids=["buffer", "frozen"]
    )
    def test_what_no_audit_has_seen_is_not_released(self, kept) -> None:
        trainer = run(make_trainer(make_run(q=0.5), model=keeping_model(**kept)), 5)

        with pytest.raises(AuditError, match=r"'1\.mean' of the model"):
            trainer.released_weights()

    def test_a_buffer_that_is_written_anew_and_stays_the_same_is_released(self) -> None:
        trainer = run(make_trainer(make_run(q=0.5), model=keeping_model(weight=0.0)), 5)

        assert torch.equal(trainer.released_weights()["1.mean"], torch.ones(64))

    @pytest.fixture
    def audited(self, monkeypatch) -> list[int]:
        """How many examples each audit looked at."""
        seen: list[int] = []
        trainer = import_module("tan_core.engine.trainer")
        monkeypatch.setattr(trainer, "audit", lambda model, x, y, *_, **__: seen.append(len(y)))
        return seen

    def test_the_first_step_is_audited_and_then_one_now_and_then(self, audited) -> None:
        run(make_trainer(make_run(q=0.5, steps=501)), 501)

        assert audited == [1, 1, 1]

    def test_an_empty_draw_leaves_the_audit_to_the_next_step(self, audited) -> None:
        trainer = make_trainer(make_run(q=1e-12, steps=3))

        run(trainer, 3)

        assert audited == []

    def test_a_run_that_goes_on_from_a_checkpoint_is_audited_at_once(self, audited) -> None:
        first = run(make_trainer(make_run(q=0.5)), 3)
        second = make_trainer(make_run(q=0.5), attempt=2)
        second.load_state(first.state())

        run(second, 1)

        assert audited == [1, 1]

    def test_so_is_one_that_goes_back_to_one(self, audited) -> None:
        """With the next audit 250 steps after its last one, it would take as many with these weights before."""
        simulation = Simulation.of(make_run(q=0.5), expected_batch_size=30)
        trainer = make_trainer(simulation)
        start = trainer.state()
        run(trainer, 3)

        trainer.load_state(start)
        run(trainer, 3)

        assert audited == [1, 1]

    def test_every_rank_audits_its_own_share(self, audited) -> None:
        run_ranks(2, 3)

        assert audited == [1, 1]

    @pytest.mark.parametrize(
        "config",
        [
            {"augmentation_multiplicity": 4, "horizontal_flip": True},
            {"clipping": "automatic"},
            {"color_jitter": 0.2},
        ],
        ids=str,
    )
    def test_views_and_other_rules_pass(self, config) -> None:
        run(make_trainer(make_run(q=0.5), config=config), 2)

    @pytest.mark.parametrize("has_kernels", [True, False])
    @pytest.mark.parametrize("margin", [40.0, 55.0, 80.0, 97.0, 110.0])
    def test_a_record_of_no_doubt_is_no_alarm(
        self, margin: float, has_kernels: bool, monkeypatch
    ) -> None:
        """The squares of its gradient are no float32, and its norm is 0."""
        if not has_kernels:
            monkeypatch.setattr(native, "accepts", lambda *_: False)
            monkeypatch.setattr(native, "is_available", lambda: False)
        model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
        with torch.no_grad():
            model[1].weight.mul_(1e-3)
            model[1].bias.copy_(torch.tensor([margin, 0, 0]))
        generator = torch.Generator().manual_seed(0)
        inputs, labels = torch.randn(32, 8, generator=generator), torch.zeros(32).long()
        kept = clipped_sum(Books(model), inputs, labels, clip_norm=1.0).norms

        audit(model, inputs, labels, kept, clip_norm=1.0)

    def test_an_audit_does_not_change_the_update(self, monkeypatch) -> None:
        audited = run(make_trainer(), 3).state().tensors["parameters"]
        trainer = import_module("tan_core.engine.trainer")
        monkeypatch.setattr(trainer, "audit", lambda *_, **__: None)

        assert torch.equal(run(make_trainer(), 3).state().tensors["parameters"], audited)

    @pytest.mark.parametrize(("steps", "between"), [(1, 250), (12_500, 250), (12_501, 251)])
    def test_audits_are_a_fiftieth_of_the_run_apart_or_250_steps(
        self, steps: int, between: int
    ) -> None:
        assert steps_between_audits(steps) == between
