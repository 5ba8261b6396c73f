"""``tan-cli serve``: the whole product on one machine, until Ctrl-C."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.errors import CliError, Exit

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (TAN_HOST).")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one (TAN_PORT).")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Where state is kept (TAN_HOME, default ~/.tan).")
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Cores for the local Ray (TAN_CPUS, default all).")
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the dashboard in a browser.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say where it is, once it is ready, as one line of JSON.")
    ] = False,
) -> None:
    """Run the whole product on this machine: PostgreSQL, Ray, API, orchestrator, dashboard."""
    chosen = {"TAN_HOST": host, "TAN_PORT": port, "TAN_HOME": home, "TAN_CPUS": cpus}
    overrides = {name: str(value) for name, value in chosen.items() if value is not None}
    raise typer.Exit(
        run_service(
            overrides,
            on_ready=lambda url, first_token: _greet(
                url, first_token, open_browser=open_browser, as_json=as_json
            ),
        )
    )


def run_service(overrides: dict[str, str], *, on_ready: "Callable[[str, str | None], None]") -> int:
    """The service's exit code, once SIGINT or SIGTERM has stopped it.

    The service is a child process that ends when this one does, in a process group of its own: a
    Ctrl-C reaches it once, through us.
    """
    import os
    import signal
    import subprocess
    import sys

    process: subprocess.Popen[str] | None = None
    is_told = False

    def stop(*_: object) -> None:
        nonlocal is_told
        is_told = True
        if process is not None:
            process.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    from service.settings import child_environment

    process = subprocess.Popen(
        [
            sys.executable, "-m", "service.local.tether", str(os.getpid()),
            sys.executable, "-m", "service.local",
        ],
        env=child_environment(**overrides),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    if is_told:  # since before there was anybody to pass it on to
        process.terminate()
    with process:
        _await_ready(process, on_ready)
        code = process.wait()
    # In its first seconds the service has started nothing, and does not listen for signals yet.
    is_ended = code == 0 or (is_told and code == -signal.SIGTERM)
    return Exit.DONE if is_ended else Exit.FAILED


def _await_ready(
    process: "subprocess.Popen[str]", on_ready: "Callable[[str, str | None], None]"
) -> None:
    if process.stdout is None:
        raise CliError("the service has no standard output to read from")
    words = process.stdout.readline().split()
    if words[:1] == ["ready"]:
        on_ready(words[1], words[2] if len(words) > 2 else None)


def _greet(url: str, first_token: str | None, *, open_browser: bool, as_json: bool) -> None:
    if as_json:
        from service.cli.output import show_json_line

        show_json_line({"url": url, "token": first_token})
    else:
        _greet_people(url, first_token)
    if open_browser:
        import webbrowser

        webbrowser.open(url)


def _greet_people(url: str, first_token: str | None) -> None:
    print(f"TAN Search is ready: dashboard and API at {url} (API reference: {url}/docs)")
    if first_token is not None:
        print(
            "Other machines can reach it, so everybody is asked for a token. An admin's, shown once:"
        )
        print(f"  export TAN_API_TOKEN={first_token}")
    print("Ctrl-C stops it. Next: tan-cli submit examples/digits.yaml --watch", flush=True)
