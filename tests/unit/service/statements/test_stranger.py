"""Forty lines that import nothing of ours find the same epsilon, and see what was changed."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.publication.keys import signing_key
from service.publication.signing import sign
from service.statements.statement import build
from tests.unit.service.statements.test_statement import make_facts

SCRIPT = Path(__file__).with_name("stranger.py")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return sign(build(make_facts()), signing_key(tmp_path_factory.mktemp("home")))


def check(folder: Path, document: dict, key_id: str) -> subprocess.CompletedProcess[str]:
    path = folder / "statement.json"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-I", str(SCRIPT), str(path), key_id]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_a_stranger_recomputes_epsilon_and_checks_the_signature(
    document: dict, tmp_path: Path
) -> None:
    done = check(tmp_path, document, document["signature"]["key_id"])
    assert (done.returncode, done.stderr) == (0, "")
    found = float(done.stdout.split()[1])
    assert found == pytest.approx(document["privacy"]["epsilon"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["weights", "signature", "key"])
def test_a_stranger_sees_a_change(document: dict, tmp_path: Path, changed: str) -> None:
    forged, key_id = json.loads(json.dumps(document)), document["signature"]["key_id"]
    if changed == "weights":
        forged["weights"]["sha256"] = "00" * 32
    elif changed == "signature":
        forged["signature"]["value"] = base64.b64encode(bytes(64)).decode()
    else:
        key_id = "0" * 16
    assert check(tmp_path, forged, key_id).returncode == 1


def test_the_code_of_the_guide_to_the_ledger_finds_the_same_epsilon(
    document: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guide = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    (tmp_path / "statement.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)

    exec("".join(blocks), {})

    stated = document["privacy"]["epsilon"]
    found = [float(number) for number in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
    assert len(blocks) == 2
    assert found == pytest.approx([stated] * 3, rel=2e-3)
