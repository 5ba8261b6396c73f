"""Studies whose search is charged, at every point of their way, as drivers bring them there."""

from tests.support.reports import completed_trial
from tests.support.world import World

CHARGED = {"accounting": "accounted", "trials": 3, "rungs": [64]}
STEPS = 100


async def searching(world: World) -> str:
    """A study whose search has a driver and no trial yet."""
    study_id = await world.submit(search=CHARGED)
    await world.tick(3)
    return study_id


DIGEST = "5b" * 32


async def searched(world: World, *, goes_on: bool = False) -> str:
    """A study whose trials were charged and scored, and whose private run may begin.

    Where it ``goes_on``, the last trial went on from the one before it, and all have kept their weights.
    """
    study_id = await searching(world)
    run_id = f"{study_id}-search"
    for number, accuracy in enumerate((0.7, 0.9, 0.8)):
        await world.report(
            run_id, "POST", "/segments",
            start_step=0, num_steps=STEPS, request_id=f"r{number}",
        )  # fmt: skip
        trial = completed_trial(number, accuracy, params={"learning_rate": 1.0 + number})
        if goes_on:
            trial |= {"weights_sha256": DIGEST}
        if goes_on and number == 2:
            start = {"trial": 1, "weights_sha256": DIGEST, "learning_rate_factor": 0.5}
            trial |= {"params": {"learning_rate": 2.0}, "began_from": start, "value": 0.95}
        await world.report(run_id, "PUT", f"/trials/{number}", trial=trial)
    await world.report(run_id, "POST", "/finish", outcome="succeeded")
    await world.tick(3)
    return study_id


async def completed(world: World) -> str:
    """A study with a statement of run, trials and scores."""
    study_id = await searched(world)
    await world.begin_segment(study_id, 0, STEPS)
    await world.finish_private(study_id)
    await world.tick(2)
    return study_id


async def noise_of(world: World, study_id: str) -> str:
    """As the pages write it."""
    charged = (await world.study(study_id))["plan"]["charged_search"]
    return f"± {100 * charged['score_std']:.2g} points"
