"""``tan-cli plan``: what a study would do and cost, before it is one."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.errors import Fault, InputError
from service.cli.options import Changes, JsonFlag

Json = dict[str, Any]

DEFAULT_TRIALS = 24


def plan(
    study_yaml: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY.yaml]",
            help="The study, planned by the server; - reads standard input. "
            "Without it, the options below describe a run, planned here.",
            show_default=False,
        ),
    ] = None,
    changes: Changes = None,
    num_examples: Annotated[int | None, typer.Option(help="N, training examples.")] = None,
    batch_size: Annotated[float | None, typer.Option(help="B, expected batch size.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="σ: then ε is computed.")] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of all steps that are reserved: then σ is calibrated to it."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="S, steps of the private run.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ, below 1/N.")] = None,
    accountant: Annotated[str, typer.Option(help="pld, rdp or prv.")] = "pld",
    trials: Annotated[int, typer.Option(help="Trials of the search.")] = DEFAULT_TRIALS,
    examples_per_second: Annotated[
        float | None,
        typer.Option(help="Of one device, for the seconds; a server measures its own."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw ε against σ at constant TAN: .png, .svg or .pdf.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a study would do and cost. Nothing is stored, nothing is spent."""
    shape: Json = {
        "--num-examples": num_examples,
        "--batch-size": batch_size,
        "--noise-multiplier": noise_multiplier,
        "--epsilon": epsilon,
        "--steps": steps,
        "--delta": delta,
        "--examples-per-second": examples_per_second,
    }
    if plot is not None:
        from service.cli.plan_plot import check_path

        check_path(plot)
    if study_yaml is None:
        if changes:
            raise InputError("--set changes the keys of a STUDY.yaml: give one")
        document = plan_here(shape, accountant=accountant, trials=trials)
    else:
        document = _plan_there(study_yaml, changes or [], shape)
    if plot is not None:
        from service.cli.plan_plot import save

        save(document, plot)
    if as_json:
        from service.cli.output import show_json

        show_json(document)
    else:
        from service.cli import plan_view
        from service.cli.output import show

        show(plan_view.plan(document))
        if plot is not None:
            show(f"wrote {plot}")


def plan_here(shape: Json, *, accountant: str, trials: int) -> Json:
    """The plan of a run that options describe, computed without a server.

    Raises:
        InputError: an option is missing, or outside its domain.
    """
    _check_shape(shape)
    from tan_core.errors import AccountantError, ParameterError
    from tan_core.mechanism import Accountant
    from tan_core.planner import MeasuredRate, plan_mechanism

    if accountant not in tuple(Accountant):
        accepted = ", ".join(Accountant)
        raise InputError("", faults=[Fault("--accountant", f"accepted: {accepted}", accountant)])
    speed = shape["--examples-per-second"]
    rate = None
    if speed is not None:
        rate = MeasuredRate(examples_per_second=speed, source="--examples-per-second")
    try:
        made = plan_mechanism(
            num_examples=shape["--num-examples"],
            expected_batch_size=shape["--batch-size"],
            noise_multiplier=_noise_multiplier(shape, Accountant(accountant)),
            steps=shape["--steps"],
            delta=shape["--delta"],
            accountant=Accountant(accountant),
            trials=trials,
            rate=rate,
        )
    except ParameterError as error:
        raise InputError(str(error), faults=[Fault(_option(error.field), str(error))]) from error
    except AccountantError as error:
        other = "" if accountant == Accountant.RDP else ", or --accountant rdp"
        raise InputError(f"{error}{other}") from error
    return made.model_dump(mode="json")


def _noise_multiplier(shape: Json, accountant: Any) -> float:
    if shape["--noise-multiplier"] is not None:
        return shape["--noise-multiplier"]
    from tan_core.errors import ParameterError
    from tan_core.mechanism import Mechanism
    from tan_core.planner.calibration import calibrated

    if shape["--batch-size"] > shape["--num-examples"]:
        raise ParameterError(
            f"the expected batch size cannot exceed num_examples = {shape['--num-examples']}",
            field="expected_batch_size",
        )
    drawn = Mechanism(
        sampling_rate=shape["--batch-size"] / shape["--num-examples"],
        noise_multiplier=1.0,  # of which the one is asked that is enough
        clip_norm=1.0,
        steps=shape["--steps"],
    )
    found = calibrated(
        drawn,
        steps=drawn.steps,
        epsilon=shape["--epsilon"],
        delta=shape["--delta"],
        accountant=accountant,
    )
    return found.noise_multiplier


def _check_shape(shape: Json) -> None:
    needed = ("--num-examples", "--batch-size", "--steps", "--delta")
    faults = [
        Fault(name, "is needed without a STUDY.yaml") for name in needed if shape[name] is None
    ]
    given = [name for name in ("--noise-multiplier", "--epsilon") if shape[name] is not None]
    if len(given) != 1:
        faults.append(Fault("--noise-multiplier, --epsilon", "exactly one of the two is needed"))
    faults += [
        Fault(name, "must be a finite number above 0", value)
        for name, value in shape.items()
        if value is not None and not (math.isfinite(value) and value > 0)
    ]
    from tan_core.spec.train import MOST_NOISE

    sigma = shape["--noise-multiplier"]
    if sigma is not None and MOST_NOISE < sigma < math.inf:
        faults.append(Fault("--noise-multiplier", f"must be at most {MOST_NOISE:,}", sigma))
    if faults:
        raise InputError("", faults=faults)


def _plan_there(study_yaml: str, changes: list[str], shape: Json) -> Json:
    """The plan of a study."""
    given = [name for name, value in shape.items() if value is not None]
    if given:
        raise InputError(
            f"{', '.join(given)}: a STUDY.yaml says this itself; leave the options out"
        )
    from service.cli.connect import document, open_client, study_sent
    from service.cli.study_file import read_mapping, with_changes

    study = with_changes(read_mapping(study_yaml), changes)
    with open_client() as client, study_sent(study, changes):
        return document(client.make_plan(study))


def _option(field: str | None) -> str:
    name = (field or "plan").rpartition(".")[2]
    name = {"expected_batch_size": "batch_size", "sampling_rate": "batch_size"}.get(name, name)
    return f"--{name.replace('_', '-')}"
