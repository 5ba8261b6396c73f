"""``tan-cli serve`` on an address that other machines reach."""

import os
import re
import subprocess
import sys

import httpx
import pytest

pytestmark = pytest.mark.slow  # two starts of the whole service


def test_the_first_admin_token_is_printed_once_and_kept_nowhere(tmp_path, database_urls):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAN_")}
    home = tmp_path / "home"
    environment = inherited | {
        "TAN_HOME": str(home),
        "TAN_HOST": "0.0.0.0",
        "TAN_DATABASE_URL": database_urls.app,
        "TAN_DATABASE_OWNER_URL": database_urls.owner,
        "TAN_RAY_ADDRESS": "http://127.0.0.1:9",  # no study is run
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "service.cli.main", "serve", "--port", "0"]

    def serve(token: str | None) -> str:
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            lines = [process.stdout.readline()]
            url = re.search(r"http://127\.0\.0\.1:\d+", lines[0])[0]
            while not lines[-1].startswith("Ctrl-C"):
                lines.append(process.stdout.readline())
            printed = "".join(lines)
            shown = re.findall(r"TAN_API_TOKEN=(tan_\S+)", printed)
            headers = {"Authorization": f"Bearer {(shown or [token])[0]}"}
            assert httpx.get(f"{url}/tokens").status_code == 401
            assert httpx.get(f"{url}/tokens", headers=headers).status_code == 200
            process.terminate()
        return shown[0] if shown else ""

    first = serve(None)
    assert serve(first) == ""
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert kept
    assert not any(first[-64:].encode() in content for content in kept)
