"""Standard output for answers, standard error for everything else."""

import json
import sys
from typing import TYPE_CHECKING, Any

from service.cli.errors import CliError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_WIDTH = 160


def console(*, error: bool = False) -> "Console":
    """A console that takes text as it is: a study named ``[red]`` stays named so."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def show(*renderables: "RenderableType", error: bool = False) -> None:
    """Print for people."""
    screen = console(error=error)
    if screen.is_terminal:
        screen.print(*renderables, sep="\n")
        return
    with screen.capture() as captured:
        screen.print(*renderables, sep="\n")
    # Tables pad their cells; a file or a pipe has no use for blanks at the end of a line.
    lines = (line.rstrip() for line in captured.get().splitlines())
    print("\n".join(lines), file=screen.file, flush=True)


def printable(value: Any) -> Any:
    """A document of anybody's with what no terminal should be sent, such as escapes, replaced in its texts.

    Example:
        >>> printable({"name": f"a{chr(27)}[2Jb", "steps": [1, chr(0xD800)]})
        {'name': 'a�[2Jb', 'steps': [1, '�']}
    """
    if isinstance(value, str):
        return "".join(char if char.isprintable() or char == "\n" else "�" for char in value)
    if isinstance(value, dict):
        return {printable(name): printable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [printable(each) for each in value]
    return value


def show_json(document: Any) -> None:
    """Print for scripts: one document, nothing else."""
    written = json.dumps(document, indent=2, ensure_ascii=False)
    # Half a surrogate pair, which no encoding can write, is an escape in JSON.
    print(written.encode(errors="backslashreplace").decode())


def show_json_line(document: Any) -> None:
    """Print one document of a stream on a line of its own."""
    print(json.dumps(document, ensure_ascii=False), flush=True)


def show_error(error: CliError, *, hint: str | None = None) -> None:
    """Every fault on a line of its own, on standard error, and what to type next."""
    screen = console(error=True)
    _show_faults(screen, error)
    if next_step := error.hint or hint:
        screen.print(f"next: {next_step}", soft_wrap=True)


def _show_faults(screen: "Console", error: CliError) -> None:
    if not error.faults:
        screen.print(f"error: {error.message}", style="red", soft_wrap=True)
        return
    count = len(error.faults)
    head = error.message if error.message and not _repeats(error) else "the input was refused"
    screen.print(f"error: {head} ({count} fault{'s' * (count > 1)})", style="red", soft_wrap=True)
    for fault in error.faults:
        screen.print(f"  {fault}", soft_wrap=True)


def _repeats(error: CliError) -> bool:
    """Whether the message only says the faults once more."""
    return all(fault.message in error.message for fault in error.faults)
