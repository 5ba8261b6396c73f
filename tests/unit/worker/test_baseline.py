"""The model without privacy that a private one is compared with, and how both are scored."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tan_core import models
from tan_core.data import Split, inspect, load_split
from tan_core.data.part import Members
from tan_core.engine import Trainer
from tan_core.mechanism import Mechanism
from tan_core.spec.models import LinearModel
from tan_core.spec.train import TrainerConfig
from tan_core.wire import DatasetRef, Evaluation, MechanismMessage, PrivateAssignment, Scores
from tests.support.datasets import dataset_ref
from worker import baseline
from worker.baseline import StoppedError, train_baseline, with_baseline
from worker.scores import scores_of

STEPS = 30


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    return dataset_ref(inspect(None, source="digits"))


@pytest.fixture(scope="module")
def splits(digits: DatasetRef) -> dict[str, Split]:
    return {role: load_split(digits, role) for role in ("train", "validation", "test")}


def assignment_of(digits: DatasetRef, *, q: float = 0.2, **trainer) -> PrivateAssignment:
    mechanism = Mechanism(sampling_rate=q, noise_multiplier=4.0, clip_norm=0.25, steps=STEPS)
    config = {"learning_rate": 1.0, "clip_norm": 0.25} | trainer
    return PrivateAssignment(
        run_id="s-1-private", study_id="s-1", study_name="one", attempt=1, fence=1,
        mechanism=MechanismMessage(event=mechanism.to_json()), num_examples=digits.num_train,
        model=LinearModel(), trainer=TrainerConfig.model_validate(config), workers=1,
        microbatch_size=2048, segment_steps=10, dataset=digits, checkpoint=None, storage_path="/x",
    )  # fmt: skip


def trained(digits: DatasetRef, splits: dict[str, Split], is_unwanted=lambda: False, **how) -> Trainer:  # fmt: skip
    return train_baseline(
        assignment_of(digits, **how),
        train=splits["train"],
        validation=splits["validation"],
        checkpoint=None,
        device=torch.device("cpu"),
        is_unwanted=is_unwanted,
    )


class TestTraining:
    def test_at_full_batch_it_is_plain_gradient_descent(
        self, digits: DatasetRef, splits: dict[str, Split], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(baseline, "RATES", (0.25,))
        plain = models.build(
            LinearModel(), shape=digits.shape, num_classes=10, generator=torch.Generator().manual_seed(0)
        )  # fmt: skip
        inputs = torch.from_numpy(np.array(splits["train"].inputs)) / 127.5 - 1
        labels = torch.from_numpy(np.array(splits["train"].labels))
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.25)

        for _ in range(STEPS):
            optimizer.zero_grad()
            functional.cross_entropy(plain(inputs), labels).backward()
            optimizer.step()
        found = trained(digits, splits, q=1.0).released_weights()

        for name, value in plain.state_dict().items():
            assert torch.allclose(found[name], value, atol=1e-4)

    def test_the_rate_that_does_best_on_the_validation_split_is_taken(
        self, digits: DatasetRef, splits: dict[str, Split], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(baseline, "RATES", (1e-6, 0.1, 1e-5))

        found = trained(digits, splits)

        assert found.evaluate(splits["validation"].inputs, splits["validation"].labels) > 0.8

    def test_a_rate_that_diverges_is_no_choice_and_all_of_them_an_error(
        self, digits: DatasetRef, splits: dict[str, Split], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grows = {"weight_decay": 10.0}  # by a factor of thousands a step, at the first rate
        monkeypatch.setattr(baseline, "RATES", (1e4, 0.01))
        assert not trained(digits, splits, **grows).is_diverged

        monkeypatch.setattr(baseline, "RATES", (1e4,))
        with pytest.raises(ValueError, match="diverged at every learning rate"):
            trained(digits, splits, **grows)

    def test_it_stops_between_two_steps_when_nobody_wants_it(
        self, digits: DatasetRef, splits: dict[str, Split]
    ) -> None:
        with pytest.raises(StoppedError, match="cancelled"):
            trained(digits, splits, lambda: True)

    def test_whatever_fails_is_told_and_the_private_scores_stay(
        self, splits: dict[str, Split]
    ) -> None:
        scores = Scores(num=2, correct=1, classes=[])

        def fail() -> Trainer:
            raise MemoryError("no room\x00 left")

        found = with_baseline(Evaluation(private=scores), lambda _: scores, fail)

        assert (found.private, found.baseline) == (scores, None)
        assert found.baseline_reason is not None
        assert "no room left" in found.baseline_reason


class TestScores:
    def test_they_count_what_the_model_tells_right_of_each_class_and_group(
        self, digits: DatasetRef, splits: dict[str, Split]
    ) -> None:
        trainer, test = trained(digits, splits), splits["test"]
        groups = Members(("even", "nobody", "odd"), 2 * (np.arange(len(test)) % 2))
        weights = trainer.released_weights()
        pixels = torch.from_numpy(np.array(test.inputs)).flatten(1) / 127.5 - 1
        weight, bias = (weights[name] for name in sorted(weights, key=lambda n: "bias" in n))
        hits = ((pixels @ weight.T + bias).argmax(1).numpy() == test.labels).astype(int)

        found = scores_of(trainer, Split(inputs=test.inputs, labels=test.labels, groups=groups))

        assert (found.num, found.correct) == (len(test), hits.sum())
        for tally in found.classes:
            own = test.labels == int(tally.name)
            assert (tally.num, tally.correct) == (own.sum(), hits[own].sum())
        assert [(tally.name, tally.correct) for tally in found.groups] == [
            ("even", hits[::2].sum()),
            ("odd", hits[1::2].sum()),
        ]
        assert found.correct / found.num == trainer.evaluate(test.inputs, test.labels)
