"""Where ``tan-cli`` begins: it is installed with the library, whose extra ``service`` it needs."""

import sys


def main() -> None:
    """Run the command line, or say how to install what it stands on."""
    try:
        from service.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("service", "tan_core", "worker"):
            raise
        sys.exit(
            f"tan-cli needs {error.name}, which is not installed here. It comes with the extra `service`: "
            "run pip install '.[service]' in the sources, as make setup does."
        )
    run()
