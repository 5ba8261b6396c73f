"""Studies as they look at every point of their way, made through the service's own functions."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import yaml
from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from service.context import Context
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.db.tables import Attempt, Run, Study, Trial
from service.ledger.service import Ledger
from service.orchestrator.proposal import propose, settle
from service.studies import repository
from service.studies import service as studies
from service.studies.events import append_event, append_state
from service.studies.glance import progress_of
from service.trials import repository as trial_rows
from tan_core.spec import StudySpec
from tan_core.spec.train import TrainerConfig
from tan_core.wire import RungScore
from tests.fixtures.postgres import DatabaseUrls
from tests.support.evaluations import evaluation

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"
HOSTILE = '<script>alert("x")</script>'
ACCURACIES = (0.62, 0.81, None, 0.795, 0.902, 0.88, 0.913, 0.927, 0.921, 0.944, 0.939, 0.951)


RUNGS = (16, 32, 64)
SEARCHED_STEPS = (150, 300, 600, 1200, 2400)
TESTED = 0.9583
TRAINER = TrainerConfig(learning_rate=2.0, schedule="cosine", warmup_fraction=0.1, clip_norm=0.5)


def spec(search: dict[str, Any] | None = None, **changes: Any) -> StudySpec:
    """The example study on three rungs, with other keys of the search and others at the top."""
    example = yaml.safe_load(DIGITS.read_text())
    searched = {**example["search"], "rungs": list(RUNGS), **(search or {})}
    return StudySpec.model_validate({**example, "search": searched, **changes})


async def submitted(context: Context, **changes: Any) -> str:
    """The id of a queued study; digits are registered on the way."""
    await ensure_digits(context.database)
    view, _ = await studies.submit(context, spec(**changes))
    return view.id


async def simulating(context: Context, *, trials: int = 12, **changes: Any) -> str:
    """The id of a study half-way through its search."""
    study_id = await submitted(context, **changes)
    await begin_search(context, study_id, trials=trials)
    return study_id


async def begin_search(context: Context, study_id: str, *, trials: int = 12) -> None:
    """Bring a submitted study half-way through its search."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        study.state, study.reason = "simulating", None
        study.started_at = func.now() - timedelta(seconds=95)
        run = Run(
            id=f"{study_id}-search", study_id=study_id, kind="search", state="active", assignment={}
        )
        session.add(run)
        await session.flush()
        session.add(Attempt(run_id=run.id, number=1, state="live", submission_id=f"{run.id}-a1"))
        session.add_all(trial(study_id, number) for number in range(trials))
        await session.flush()
        await append_state(session, study)


def trial(study_id: str, number: int, *, steps: int = 300) -> Trial:
    """One trial: the better, the higher it has climbed; one in twelve has diverged at once."""
    value = ACCURACIES[number % len(ACCURACIES)]
    if value is not None and number >= len(ACCURACIES):
        value = min(0.97, value + 0.01 * math.sin(number))
    climbed = 1 if value is None else sum(value >= least for least in (0.0, 0.85, 0.91))
    ladder = [None if value is None else value - 0.006 * rung for rung in range(climbed)]
    state = "diverged" if value is None else "completed" if climbed == len(RUNGS) else "pruned"
    reason = {
        "diverged": "training loss is not finite at step 41",
        "pruned": f"below the best at batch {RUNGS[climbed - 1]}",
    }.get(state)
    return Trial(
        study_id=study_id,
        number=number,
        state=state,
        params={"learning_rate": 0.25 * 1.37 ** (number % 12), "momentum": 0.9},
        scores=[score(rung, share, steps=steps) for rung, share in enumerate(ladder)],
        repeats=[],
        value=ladder[-1],
        source="s-0123456789ab trial 7" if number == 0 else None,
        reason=reason,
        attempt=1,
    )


def score(rung: int, accuracy: float | None, *, seed: int = 0, steps: int = 300) -> dict[str, Any]:
    """One simulation, as it is stored. More steps have more noise, at one epsilon."""
    noise = 4.9 * math.sqrt(steps / 300) * RUNGS[rung] / 256
    return RungScore(
        rung=rung,
        seed=seed,
        expected_batch_size=RUNGS[rung],
        noise_multiplier=noise,
        steps=steps,
        accuracy=accuracy,
        train_loss=0.3,
        clipped_fraction=0.625,
        seconds=2.0 + rung,
    ).model_dump(mode="json")


async def searching_steps(context: Context, *, trials: int = 12) -> str:
    """The id of a study whose candidates differ in their steps."""
    example = yaml.safe_load(DIGITS.read_text())
    space = {**example["search"]["space"], "steps": {"choices": list(SEARCHED_STEPS)}}
    study_id = await simulating(
        context,
        trials=0,
        name="steps",
        search={"space": space},
        train={**example["train"], "steps": "auto"},
    )
    async with context.database.session() as session:
        for number in range(trials):
            steps = SEARCHED_STEPS[number % len(SEARCHED_STEPS)]
            made = trial(study_id, number, steps=steps)
            made.params = {**made.params, "steps": steps}
            session.add(made)
    return study_id


async def decide(session: AsyncSession, study: Study, *, is_settled: bool = True) -> int:
    """The finals and the choice at the end of a search; the number of the winner."""
    trials = await trial_rows.every(session, study.id)
    completed = [one for one in trials if one.state == "completed"]
    for finalist in sorted(completed, key=lambda one: -(one.value or 0))[:2]:
        finalist.repeats = [
            score(rung, round((finalist.value or 0) - 0.007 * rung + 0.004 * seed, 4), seed=seed)
            for seed in (1, 2)
            for rung in range(len(RUNGS))
        ]
    await session.flush()
    proposed = await propose(session, study)
    assert proposed is not None
    if is_settled:
        settle(study, proposed, trial=proposed.winner.trial)
    return proposed.winner.trial


async def training(context: Context, *, step: int = 140, **changes: Any) -> str:
    """The id of a study whose private run is on its second attempt."""
    study_id = await simulating(context, **changes)
    await begin_private_run(context, study_id, step=step)
    return study_id


async def begin_private_run(context: Context, study_id: str, *, step: int = 140) -> None:
    """Promote the best trial of a search into a private run, and let it come so far."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        steps = study.plan["reference"]["steps"]
        study.state, study.promoted_trial = "training", await decide(session, study)
        run = Run(
            id=f"{study_id}-private", study_id=study_id, kind="private", state="active",
            assignment={"trainer": TRAINER.model_dump(mode="json")}, step=step, steps=steps, steps_per_second=23.4,
        )  # fmt: skip
        session.add(run)
        await session.flush()
        for number, state in ((1, "lost"), (2, "live")):
            session.add(
                Attempt(
                    run_id=run.id, number=number, state=state, submission_id=f"{run.id}-a{number}"
                )
            )
        await session.flush()
        ledger = Ledger()
        assert study.reservation_id
        for epoch, start, count in ((1, 0, 60), (2, 40, step - 40)):
            await ledger.acquire(session, study.reservation_id, epoch=epoch)
            await ledger.begin_segment(
                session, study.reservation_id, epoch=epoch, start_step=start, num_steps=count,
                request_id=f"r{epoch}",
            )  # fmt: skip
        await append_state(session, study)


async def completed(context: Context, **changes: Any) -> str:
    """The id of a study that has come to its good end."""
    study_id = await training(context, **changes)
    await complete(context, study_id)
    return study_id


async def complete(context: Context, study_id: str) -> None:
    """Bring a study whose private run has begun to its good end."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        run = await repository.run_of(session, study_id, "private")
        assert run is not None
        run.state, run.step = "succeeded", run.steps
        run.result = {
            "steps": run.steps, "test_accuracy": TESTED, "num_test": 360, "model_path": "-",
            "model_sha256": "0" * 64, "train_seconds": 31.0, "software": {},
            "updates": [
                {"step": step, "gradient_norm": 0.4 + math.exp(-step / 90), "ema_distance": 0.01 * math.sqrt(step)}
                for step in range(0, run.steps, 2)
            ],
        }  # fmt: skip
        planned = study.plan["privacy"]
        study.statement = {
            "privacy": {
                "epsilon": planned["epsilon"] - 0.01,
                "accountant": planned["accountant"],
            }
        }
        study.state = "completed"
        study.finished_at = func.now() + timedelta(seconds=30)
        assert study.reservation_id
        await Ledger().release(session, study.reservation_id, actor="test", reason="completed")
        await session.flush()
        await append_state(session, study)


async def evaluated(context: Context, *, baseline: bool = True, **changes: Any) -> str:
    """The id of a completed study that tells accuracy by class and by group."""
    study_id = await completed(context, **changes)
    async with context.database.session() as session:
        run = await repository.run_of(session, study_id, "private")
        assert run is not None
        run.result = {**(run.result or {}), "evaluation": evaluation(baseline=baseline)}
    return study_id


async def failed(context: Context, reason: str, **changes: Any) -> str:
    """The id of a study that failed."""
    study_id = await simulating(context, trials=3, **changes)
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        study.state, study.reason, study.error = "failed", reason, {"reason": reason}
        study.finished_at = func.now()
        await session.flush()
        await append_state(session, study)
    return study_id


async def awaiting_approval(context: Context, **changes: Any) -> str:
    """The id of a study that waits for someone."""
    study_id = await simulating(context, promotion="manual", **changes)
    await ask_approval(context, study_id)
    return study_id


async def ask_approval(context: Context, study_id: str) -> None:
    """Let the search of a study end, and the study wait for someone."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        study.state, study.reason = "awaiting_approval", "waiting for tan-cli promote"
        await decide(session, study, is_settled=False)
        await session.flush()
        await append_state(session, study)


async def calibrated(context: Context, count: int) -> None:
    """So many completed studies, of which about a tenth missed their interval."""
    study_id = await completed(context, name="calibrated")
    await copies(context, study_id, count - 1)
    async with context.database.session() as session:
        run = await repository.run_of(session, study_id, "private")
        assert run is not None
        assert run.result is not None
        for number in range(count - 1):
            study = await session.get_one(Study, f"s-copy-{number:04d}")
            assert study.prediction is not None
            shift = -0.2 * math.sin(number) ** 2
            study.prediction = {
                **study.prediction,
                **{name: study.prediction[name] + shift for name in ("accuracy", "low", "high")},
            }
            error = -0.06 if number % 10 == 9 else 0.01 * math.sin(7 * number)
            reached = study.prediction["accuracy"] + error
            session.add(
                Run(
                    id=f"{study.id}-private", study_id=study.id, kind="private",
                    state="succeeded", assignment={}, result={**run.result, "test_accuracy": reached},
                )
            )  # fmt: skip


async def copies(context: Context, study_id: str, count: int) -> None:
    """Older copies of a study, a minute apart."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id)
        stored = {column.key: getattr(study, column.key) for column in Study.__table__.columns}
        stored |= {"reservation_id": None, "event_seq": 0}
        session.add_all(
            Study(
                **{
                    **{key: value for key, value in stored.items() if value is not None},
                    "id": f"s-copy-{number:04d}",
                    "name": f"{study.name}-{number}",
                    "created_at": study.created_at - timedelta(minutes=number + 1),
                }
            )
            for number in range(count)
        )


async def rename(owner: Database, study_id: str, name: str) -> None:
    """Give a stored study a name that no spec would accept."""
    async with owner.session() as session:
        study = await session.get_one(Study, study_id)
        study.name, study.reason = name, name
        study.spec = {**study.spec, "name": name}
        session.add(Trial(
            study_id=study_id, number=999, state="failed", params={name: name}, scores=[],
            value=None, reason=name, attempt=1,
        ))  # fmt: skip


async def report_trial(context: Context, study_id: str, number: int, value: float) -> None:
    """A new trial arrives, with its event."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id, with_for_update=True)
        made = trial(study_id, number)
        made.state, made.value, made.reason = "completed", value, None
        made.scores = [score(rung, value) for rung in range(len(RUNGS))]
        session.add(made)
        await session.flush()
        progress = await progress_of(session, study)
        record = repository.trial_record(made).model_dump(mode="json")
        await append_event(
            session, study, "trial", {"trial": record, "progress": progress.model_dump(mode="json")}
        )


async def end(context: Context, study_id: str, state: str) -> None:
    """The study ends."""
    async with context.database.session() as session:
        study = await session.get_one(Study, study_id, with_for_update=True)
        study.state, study.finished_at = state, func.now()
        await session.flush()
        await append_state(session, study)


def make_public(urls: DatabaseUrls, name: str = "digits") -> None:
    """Forget a dataset's budget, as if it had been registered as public: by the owner of the tables, as nobody else may."""
    with psycopg.connect(urls.owner) as connection:
        connection.execute(
            "UPDATE dataset SET public = true, scope_id = NULL WHERE name = %s", (name,)
        )
