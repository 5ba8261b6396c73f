"""``tan-cli``: the commands, and how an error becomes an exit code.

Start-up matters for a command line: a module that a command needs is imported inside the command.
"""

import codecs
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from service.cli import (
    calibration,
    compare,
    database,
    datasets,
    download,
    edits,
    init,
    keys,
    ledger,
    operate,
    plans,
    results,
    schema,
    selftest,
    serve,
    studies,
    submit,
    tokens,
    trials,
)
from service.cli.doctor import command as doctor
from service.cli.errors import CliError, Exit, InputError

app = typer.Typer(
    name="tan-cli",
    help=(
        "Find hyper-parameters for differentially private training, train, and account for it. "
        "To begin: tan-cli serve, then in another terminal tan-cli init and tan-cli submit study.yaml --watch. "
        "The server is TAN_API_URL (default: the one that `tan-cli serve` runs here), the token "
        "TAN_API_TOKEN. Exit codes: 0 done, 1 failed, 2 bad input, 3 over budget."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            known = version("tan-search")
        except PackageNotFoundError:
            known = "from its source"
        typer.echo(f"tan-cli {known}")
        raise typer.Exit


@app.callback()
def _of_all_commands(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            callback=_tell_version,
            is_eager=True,
        ),
    ] = False,
) -> None: ...


app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("init")(init.init)
app.command("schema")(schema.schema)
app.command("plan")(plans.plan)
app.command("submit")(submit.submit)
app.command("list")(studies.list_studies)
app.command("show")(studies.show_study)
app.command("watch")(studies.watch)
app.command("trials")(trials.trials)
app.command("trial")(trials.trial)
app.command("compare")(compare.compare)
app.command("tag")(edits.tag)
app.command("note")(edits.note)
app.command("archive")(edits.archive)
app.command("unarchive")(edits.unarchive)
app.command("cancel")(studies.cancel)
app.command("pause")(operate.pause)
app.command("resume")(operate.resume)
app.command("finish")(operate.finish)
app.command("logs")(operate.logs)
app.command("promote")(studies.promote)
app.command("calibration")(calibration.calibration)
app.command("audit")(tokens.audit)
app.command("statement")(results.statement)
app.command("download")(download.download)
app.add_typer(database.app, name="db", help="The database: schema, backup, restore.")
app.add_typer(datasets.app, name="dataset", help="Register datasets and list them.")
app.add_typer(ledger.app, name="ledger", help="Budgets: what is held, charged and left; evidence.")
app.add_typer(keys.app, name="key", help="The keys that sign privacy statements.")
app.add_typer(selftest.app, name="selftest", help="Checks of the product on itself.")
app.add_typer(tokens.app, name="token", help="Who may do what: API tokens.")


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one command line."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="tan-cli")
    except CliError as error:
        from service.cli.output import show_error

        show_error(error, hint=f"{_command(arguments)} --help")
        return error.exit_code
    except SystemExit as exit_:
        if isinstance(exit_.__context__, BrokenPipeError):  # who reads has seen enough
            return Exit.DONE
        return exit_.code if isinstance(exit_.code, int) else Exit.FAILED
    except OSError as error:
        return _unwritten(error)
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        return _no_text(error, arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.DONE


def _no_text(
    error: UnicodeEncodeError | UnicodeDecodeError, arguments: Sequence[str] | None
) -> int:
    """The exit code where bytes were typed, or came by standard input, that are no text."""
    from service.cli.output import show_error

    bad = error.object[error.start : error.end]
    refusal = InputError(f"{bad!a} is no text in UTF-8, and cannot be sent")
    show_error(refusal, hint=f"{_command(arguments)} --help")
    return refusal.exit_code


def _unwritten(error: OSError) -> int:
    """The exit code where what was to be said found no room, as on a disk that is full."""
    from service.cli.output import show_error

    what = f"{error.filename}: " if error.filename else "the output: "
    show_error(CliError(f"cannot read or write {what}{error.strerror or error}"))
    _forget_output()
    return Exit.FAILED


def _forget_output() -> None:
    """What is still buffered would fail once more as Python exits, and be told as an exception."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(arguments: Sequence[str] | None) -> str:
    """The command that was meant, as one types it."""
    command: object = typer.main.get_command(app)
    path = ["tan-cli"]
    for word in sys.argv[1:] if arguments is None else arguments:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
        path.append(word)
    return " ".join(path)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What an encoding does not know, as JSON escapes it: within JSON it is the same text."""
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101 - nothing is read with it
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _write_whatever() -> None:
    """Let no output fail over an ε, as on a terminal or in a pipe that is not UTF-8."""
    codecs.register_error("escaped", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="escaped")


def main() -> None:
    """Entry point of ``tan-cli``."""
    _write_whatever()
    code = run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough
        _forget_output()
    except OSError as error:
        code = _unwritten(error)
    sys.exit(code)


if __name__ == "__main__":
    main()
