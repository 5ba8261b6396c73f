"""A large search as charts need it: four searched parameters, learning curves, reports of steps."""

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml
from sqlalchemy import delete, insert

from service.context import Context
from service.db.tables import Event, Study, Trial
from tan_core.wire import CurvePoint, RungScore
from tests.integration.dashboard import seeding

SPACE = {
    "learning_rate": {"low": 0.125, "high": 8.0, "log": True},
    "momentum": {"low": 0.0, "high": 0.95},
    "ema_decay": {"choices": [0.9, 0.98, 0.99]},
    "augmentation_multiplicity": {"low": 1, "high": 8},
}
BATCH = 2000
BEGAN = datetime(2026, 1, 2, tzinfo=UTC)


def spec_changes(trials: int, name: str = "rich") -> dict[str, Any]:
    example = yaml.safe_load(seeding.DIGITS.read_text())
    return {
        "name": name,
        "search": {"space": SPACE, "trials": max(trials, 1)},
        "train": example["train"],
    }


async def fill(context: Context, study_id: str, trials: int, *, seed: int = 0) -> None:
    """Give a study so many trials in the place of those it has."""
    draw = random.Random(seed)
    rows = [_trial(study_id, number, draw) for number in range(trials)]
    async with context.database.session() as session:
        await session.execute(delete(Trial).where(Trial.study_id == study_id))
        for start in range(0, trials, BATCH):
            await session.execute(insert(Trial), rows[start : start + BATCH])


def _trial(study_id: str, number: int, draw: random.Random) -> dict[str, Any]:
    params = {
        "learning_rate": 0.125 * 64 ** draw.random(),
        "momentum": 0.95 * draw.random(),
        "ema_decay": draw.choice([0.9, 0.98, 0.99]),
        "augmentation_multiplicity": draw.randint(1, 8),
    }
    away = math.log2(params["learning_rate"]) - 0.8
    value = 0.955 - 0.02 * away**2 - 0.05 * (params["momentum"] - 0.5) ** 2 + draw.gauss(0, 0.008)
    value = min(0.985, max(0.1, value))
    diverged = params["learning_rate"] > 7 and draw.random() < 0.5
    climbed = 1 if diverged else 3 if value > 0.94 else 2 if value > 0.9 else 1
    scores = (
        [] if diverged else [_score(rung, value - 0.005 * rung, draw) for rung in range(climbed)]
    )
    state = "diverged" if diverged else "completed" if climbed == 3 else "pruned"
    # On one of four workers each; all wait once, on the way.
    begin = BEGAN + timedelta(
        seconds=8 * (number // 4) + 2 * (number % 4) + (30 if number > 200 else 0)
    )
    end = begin + timedelta(seconds=0.4 if diverged else 1 + 2 * climbed)
    return {
        "study_id": study_id, "number": number, "state": state, "params": params, "scores": scores,
        "repeats": [], "value": None if diverged else scores[-1]["accuracy"], "source": None,
        "reason": "training loss is not finite at step 41" if diverged else None, "attempt": 1,
        "started_at": begin, "updated_at": end, "finished_at": end,
    }  # fmt: skip


def _score(rung: int, accuracy: float, draw: random.Random) -> dict[str, Any]:
    curve = [
        CurvePoint(
            step=75 * part, accuracy=max(0.0, accuracy - 0.6 * 0.35**part + draw.gauss(0, 0.004))
        )
        for part in range(1, 5)
    ]
    return RungScore(
        rung=rung, expected_batch_size=seeding.RUNGS[rung], noise_multiplier=4.9 * seeding.RUNGS[rung] / 256,
        steps=300, accuracy=accuracy, train_loss=0.3, clipped_fraction=0.4 + 0.1 * rung, seconds=2.0 + rung, curve=curve,
    ).model_dump(mode="json")  # fmt: skip


async def report_steps(context: Context, study_id: str, *, last: int = 140) -> None:
    """Step events of a private run, as if its driver had reported them."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id, with_for_update=True)
        start = datetime.now(UTC) - timedelta(seconds=last / 10)
        for number, step in enumerate(range(0, last + 1, 5)):
            study.event_seq += 1
            session.add(Event(
                study_id=study_id, seq=study.event_seq, kind="step", at=start + timedelta(seconds=step / 10),
                data={"step": step, "steps": 300, "steps_per_second": 10 + math.sin(number)},
            ))  # fmt: skip
