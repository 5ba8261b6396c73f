"""The engine on a GPU: the same clipped sums, audits that pass, and the steps that a CPU takes."""

import numpy as np
import pytest
import torch
from torch import nn

from tan_core import models
from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer, clipped_sum
from tan_core.engine.audit import TOLERANCE, differences, tolerance
from tan_core.engine.bookkeeping import Books
from tan_core.engine.memory import views_at_once
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.spec.models import MODEL_TYPES
from tan_core.spec.train import Precision, TrainerConfig
from tan_core.testing.oracle import example_gradients

pytestmark = pytest.mark.gpu

SHAPE = (3, 32, 32)
MODELS = [
    ("tanh-cnn", {}),
    ("mlp", {"hidden": [32]}),
    ("linear", {}),
    ("wrn-16-4", {}),
    ("wrn-16-4", {"weight_standardization": True}),
    ("wrn-16-4", {"order": "norm_relu"}),
    ("nf-resnet-50", {}),
    ("vit-tiny", {"depth": 2}),
]


def _build(name: str, options) -> nn.Module:
    return models.build(
        MODEL_TYPES[name](name=name, **options),
        shape=SHAPE,
        num_classes=10,
        generator=torch.Generator().manual_seed(0),
    ).cuda()


def _batch(examples: int, views: int):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(examples * views, *SHAPE, generator=generator) * 2 - 1
    return inputs.cuda(), torch.randint(0, 10, (examples,), generator=generator).cuda()


@pytest.mark.parametrize(("name", "options"), MODELS, ids=str)
@pytest.mark.parametrize("views", [1, 4])
def test_the_clipped_sum_is_that_of_the_definition(name: str, options, views: int) -> None:
    model, (inputs, labels) = _build(name, options), _batch(5, views)
    exact = _build(name, options).double()
    rows = example_gradients(exact, inputs.double(), labels, views=views)
    norms = rows.norm(dim=1)
    clip_norm = float(norms.median())
    expected = (clip_norm / norms).clamp_max(1) @ rows
    for laid_out in (inputs, inputs.contiguous(memory_format=torch.channels_last)):
        got = clipped_sum(model, laid_out, labels, clip_norm=clip_norm, views=views)
        # A ReLU near a tie goes the other way in float32 now and then.
        assert torch.allclose(got.norms.double(), norms, rtol=1e-3)
        assert float((got.sum.double() - expected).norm()) <= 2e-2 * float(expected.norm())
        in_full = clipped_sum(exact, laid_out.double(), labels, clip_norm=clip_norm, views=views)
        assert torch.allclose(in_full.norms, norms, rtol=1e-9)
        assert float((in_full.sum - expected).norm()) <= 1e-9 * float(expected.norm())


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(("name", "options"), MODELS, ids=str)
def test_no_example_moves_the_sum_by_more_than_the_clipping_norm(
    name: str, options, precision: Precision
) -> None:
    books = Books(_build(name, options), precision)
    inputs, labels = _batch(6, 2)
    with torch.no_grad():
        norms = clipped_sum(books, inputs, labels, clip_norm=1.0, views=2).norms
        clip_norm = 0.5 * float(norms.min())
        for example, label in enumerate(labels):
            own = inputs[2 * example : 2 * example + 2]
            alone = clipped_sum(books, own, label[None], clip_norm=clip_norm, views=2)
            assert float(alone.sum.double().norm()) == pytest.approx(clip_norm, rel=1e-5)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(("name", "options"), MODELS, ids=str)
def test_audits_pass_by_far(name: str, options, precision: Precision) -> None:
    torch.backends.cudnn.allow_tf32 = True  # as torch has it
    model, (inputs, labels) = _build(name, options), _batch(8, 4)
    kept = clipped_sum(Books(model, precision), inputs, labels, clip_norm=1.0, views=4).norms
    found = differences(model, inputs, labels, kept, clip_norm=1.0, views=4, precision=precision)
    print(f"{name} {options} {precision.value}: {max(found):.1e}")
    assert max(found) < TOLERANCE[precision] / 2


def test_an_audit_knows_what_tf32_rounds() -> None:
    model = _build("tanh-cnn", {})
    assert tolerance(model, Precision.FLOAT32) == TOLERANCE[Precision.FLOAT32]
    torch.backends.cudnn.conv.fp32_precision = (
        "tf32"  # and of rnn it is unset, of which torch refuses to say one thing
    )
    assert tolerance(model, Precision.FLOAT32) == TOLERANCE[Precision.BFLOAT16]
    torch.backends.cudnn.allow_tf32 = True  # as torch has it
    assert tolerance(model, Precision.FLOAT32) == TOLERANCE[Precision.BFLOAT16]
    assert tolerance(model.double(), Precision.FLOAT32) == TOLERANCE[Precision.FLOAT32]


@pytest.mark.parametrize("views", [1, 16])
def test_as_many_views_as_half_of_the_free_memory_holds(views: int) -> None:
    model, free = (
        models.build(
            MODEL_TYPES["wrn-16-4"](name="wrn-16-4"),
            shape=SHAPE,
            num_classes=10,
            generator=torch.Generator().manual_seed(0),
        ),
        torch.cuda.mem_get_info()[0],
    )
    few = views_at_once(model, SHAPE, views=views, precision=Precision.BFLOAT16, share=0.01)
    number = views_at_once(model, SHAPE, views=views, precision=Precision.BFLOAT16)
    assert few <= 256 < number <= 8192
    inputs, labels = _batch(number // views, views)
    torch.cuda.reset_peak_memory_stats()
    books = Books(model.cuda(), Precision.BFLOAT16)
    clipped_sum(books, inputs, labels, clip_norm=1.0, views=views, microbatch_size=number)
    taken = torch.cuda.max_memory_allocated()
    print(f"{number} views of K {views}: {taken / 2**30:.1f} GiB of {free / 2**30:.0f}")
    assert taken < 0.6 * free


def test_an_empty_batch_and_what_is_not_finite_add_nothing() -> None:
    books = Books(_build("wrn-16-4", {}), Precision.BFLOAT16)
    inputs, labels = _batch(3, 2)
    assert not clipped_sum(books, inputs[:0], labels[:0], clip_norm=1.0, views=2).sum.any()
    expected = clipped_sum(books, inputs[:4], labels[:2], clip_norm=1.0, views=2).sum
    inputs[5] = torch.nan
    got = clipped_sum(books, inputs, labels, clip_norm=1.0, views=2)
    assert torch.allclose(got.sum, expected, atol=1e-5)
    assert got.norms.isfinite().tolist() == [True, True, False]


@pytest.mark.parametrize("multiplicity", [1, 2])
def test_steps_are_those_of_a_cpu(multiplicity: int) -> None:
    random = np.random.default_rng(0)
    data = {
        "inputs": random.integers(0, 256, (60, 3, 16, 16), dtype=np.uint8),
        "labels": random.integers(0, 10, 60),
    }
    mechanism = Mechanism(sampling_rate=0.3, noise_multiplier=1.0, clip_norm=1.0, steps=20)
    run = PrivateRun(mechanism=mechanism, num_examples=60)
    ends = []
    for device in ("cpu", "cuda"):
        trainer = Trainer(
            model=models.build(
                MODEL_TYPES["tanh-cnn"](),
                shape=(3, 16, 16),
                num_classes=10,
                generator=torch.Generator().manual_seed(0),
            ),
            execution=Simulation.of(run, expected_batch_size=18),
            config=TrainerConfig(
                learning_rate=0.5,
                momentum=0.9,
                ema_decay=0.9,
                augmentation_multiplicity=multiplicity,
                horizontal_flip=multiplicity > 1,
                color_jitter=0.2 if multiplicity > 1 else 0,
            ),
            **data,
            randomness=SeededRandomness(0),
            microbatch_size=8,
            device=device,
        )
        for _ in range(5):
            trainer.step()
        state = trainer.state().tensors
        ends.append(torch.cat([state["parameters"], state["ema"]]))
        assert 0 <= trainer.evaluate(data["inputs"], data["labels"]) <= 1
    assert torch.allclose(*ends, atol=2e-3)


@pytest.mark.parametrize("q", [0.3, 1e-12], ids=["", "empty"])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("is_there", [False, True], ids=["", "there-before"])
def test_private_steps_have_the_noise_of_a_cpu(
    q: float, world_size: int, *, is_there: bool
) -> None:
    """In float64, made ahead; of two ranks the other one adds nothing here, and its share of the noise is missing in both."""
    random = np.random.default_rng(0)
    mechanism = Mechanism(sampling_rate=q, noise_multiplier=1.0, clip_norm=1.0, steps=20)
    inputs = random.integers(0, 256, (60, 3, 16, 16), dtype=np.uint8)
    labels = random.integers(0, 10, 60)
    ends = []
    for device in ("cpu", "cuda"):
        sent: list[torch.Tensor] = []
        model = models.build(
            MODEL_TYPES["tanh-cnn"](),
            shape=(3, 16, 16),
            num_classes=10,
            generator=torch.Generator().manual_seed(0),
        )
        trainer = Trainer(
            model=model.to(device) if is_there else model,
            execution=PrivateRun(mechanism=mechanism, num_examples=60),
            config=TrainerConfig(learning_rate=0.5, optimizer="adam", ema_decay=0.9),
            inputs=inputs,
            labels=labels,
            randomness=PrivateRandomness(bytes(32), 1),
            microbatch_size=8,
            world_size=world_size,
            all_reduce=sent.append if world_size > 1 else None,
            device=device,
        )
        trainer._agreed = 10**9  # there is no other rank
        trainer.rehearse(num_scored=100)
        for _ in range(5):
            trainer.step()
        assert {(each.device.type, each.dtype) for each in sent} <= {(device, torch.float64)}
        state = trainer.state().tensors
        ends.append(torch.cat([state["parameters"], state["ema"]]))
    assert torch.allclose(*ends, atol=1e-5 if q < 0.1 else 1e-2)
