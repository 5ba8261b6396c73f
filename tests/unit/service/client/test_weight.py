"""The client is for notebooks and scripts: it brings no server along."""

import subprocess
import sys

HEAVY = (
    *("sqlalchemy", "psycopg", "alembic", "fastapi", "starlette", "cryptography", "torch", "ray"),
    *("scipy.optimize", "scipy.special"),  # a second on a busy machine
)


def test_the_client_imports_neither_a_database_nor_a_framework_nor_torch_nor_all_of_scipy() -> None:
    code = f"import sys, service.client; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
