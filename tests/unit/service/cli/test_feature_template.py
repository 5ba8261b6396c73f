"""``tan-cli dataset features``: a file for ``--features`` that tells no value of the data."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import RecordedServer

CSV = "age,sex,smokes,label\n31,f,true,0\n47,m,false,1\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.csv"
    path.write_text(CSV)
    return path


def stated(text: str) -> dict[str, str]:
    """The lines that are no comments."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_each_column_but_the_label_has_a_line_and_no_value(
    cli: Cli, server: RecordedServer, table: Path
) -> None:
    done = cli("dataset", "features", str(table))

    assert done.code == 0
    assert stated(done.out) == {
        "age": "{low: LOW, high: HIGH}",
        "sex": "{choices: []}",
        "smokes": "",
    }
    assert not any(value in done.out for value in ("31", "47", "true,", "[f"))
    assert not server.requests


def test_parquet_says_its_kinds_itself(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    columns = {
        "pixel": pa.array([1, 2], pa.uint8()),
        "when": pa.array([1, 2], pa.date32()),
        "who": pa.array(["a", "b"]).dictionary_encode(),
        "a: b": pa.array([0.5, 1.5]),
        "y": pa.array([0, 1]),
    }
    pa_parquet.write_table(pa.table(columns), file)

    done = cli("dataset", "features", str(tmp_path), "--label", "y", "--unit", "who")

    assert done.out.splitlines()[-3:] == [
        "pixel:",
        "# when: neither numbers nor text: no feature",
        '"a: b": {low: LOW, high: HIGH}',
    ]
    assert "--label y --unit who" in done.out


def test_what_is_printed_is_refused_by_the_column_until_it_is_filled_in(
    cli: Cli, server: RecordedServer, table: Path
) -> None:
    file = table.with_name("features.yaml")
    template = cli("dataset", "features", str(table)).out
    add = ("dataset", "add", "clinic", "--public", "--path", str(table), "--features", str(file))

    file.write_text(template)
    refused = cli(*add)
    file.write_text(template.replace("LOW", "0").replace("HIGH", "100").replace("[]", "[f, m]"))
    taken = cli(*add)

    assert refused.code == 2
    for fault in ("age.low: ", "age.high: ", "sex.choices: "):
        assert fault in refused.err
    assert "3 faults" in refused.err
    assert taken.code == 0
    ((body, _),) = server.asked("POST /datasets")
    assert body is not None
    assert body["features"] == [
        {"column": "age", "low": 0, "high": 100},
        {"column": "sex", "choices": ["f", "m"]},
        "smokes",
    ]


def test_json_is_what_the_api_takes(cli: Cli, table: Path) -> None:
    assert json.loads(cli("dataset", "features", str(table), "--json").out) == [
        {"column": "age", "low": None, "high": None},
        {"column": "sex", "choices": []},
        "smokes",
    ]


def test_a_column_or_a_table_that_is_not_there_is_named(cli: Cli, table: Path) -> None:
    done = cli("dataset", "features", str(table), "--label", "outcome")
    assert done.code == 2
    assert "--label: there is no such column; columns: age, sex, smokes, label" in done.err

    done = cli("dataset", "features", str(table.with_name("none.csv")))
    assert done.code == 2
    assert "no such file or folder" in done.err
