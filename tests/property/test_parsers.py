"""Whatever bytes come in, every parser gives a value or the one error that it promises."""

import contextlib
import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from service import paging
from service.body import _parse_json, _parse_yaml
from service.errors import InvalidInputError
from service.ledger.journal import entry_hash, verify
from service.ledger.schemas import Entry, Head, Scope
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.statements.export_check import verify_export
from service.statements.statement import build
from service.statements.verify import verify_statement
from service.studies.schemas import StudyListing
from tan_core import wire
from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism
from tan_core.spec import StudySpec, field_problems
from tan_core.spec.yaml import parse_yaml
from tests.fixtures.api import make_spec
from tests.unit.service.statements.test_export_check import make_export
from tests.unit.service.statements.test_statement import make_facts

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
YAML_PARTS = [
    "a", "b", ": ", ":", "- ", "\n", "  ", "{", "}", "[", "]", ",", "&a ", "*a", "<<: ", "!!python/object:x ",
    "!!binary ", "!!set ", "---\n", "...\n", "%YAML 1.1\n", "|\n", ">\n", "'", '"', "#", "? ", "1e5", "0x",
    "~", "\t", "\x00", "\u2028", "\ufeff", "\ud800", "é", "2024-01-01", "12:30", ".inf", "1" * 5000,
]  # fmt: skip
yaml_texts = st.lists(st.sampled_from(YAML_PARTS), max_size=30).map("".join)


@st.composite
def changed(draw: st.DrawFn, document: dict[str, Any]) -> Any:
    """The document with some of its values, however deep, replaced by anything."""
    value: Any = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place, key, parent = value, None, None
        while isinstance(place, dict | list) and place and (parent is None or draw(st.booleans())):
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            parent, key = place, draw(st.sampled_from(keys))
            place = parent[key]
        if parent is None:
            return draw(json_values)
        parent[key] = draw(json_values)
    return value


class TestYaml:
    @settings(max_examples=200)
    @given(yaml_texts | st.text(max_size=200))
    def test_any_text(self, text: str) -> None:
        try:
            found = parse_yaml(text)
        except ParameterError:
            return
        assert isinstance(found, dict)
        assert all(isinstance(key, str) for key in found)

    @given(st.binary(max_size=200))
    def test_any_bytes_of_a_request(self, raw: bytes) -> None:
        for parse in (_parse_yaml, _parse_json):
            with contextlib.suppress(ParameterError, HTTPException):
                parse(raw)

    @given(st.integers(2, 12), st.integers(2, 12))
    def test_aliases_of_aliases_do_not_grow(self, depth: int, width: int) -> None:
        lines = ["a0: &a0 [x]"]
        for level in range(1, depth):
            several = ", ".join([f"*a{level - 1}"] * width)
            lines.append(f"a{level}: &a{level} [{several}]")
        with contextlib.suppress(ParameterError):
            assert len(json.dumps(parse_yaml("\n".join(lines)))) < 10**6

    @given(changed(make_spec()))
    def test_a_study_that_is_changed_anywhere(self, document: Any) -> None:
        with contextlib.suppress(ParameterError):
            parsed = parse_yaml(yaml.safe_dump(document))
            try:
                StudySpec.model_validate(parsed)
            except ValidationError as error:
                json.dumps([problem.path for problem in field_problems(error, StudySpec)])


MECHANISM = Mechanism(sampling_rate=0.1, noise_multiplier=2.0, clip_norm=1.0, steps=10)


class TestMechanism:
    @settings(max_examples=300)
    @given(changed(MECHANISM.to_json()))
    def test_what_is_read_is_what_is_written(self, document: Any) -> None:
        try:
            found = Mechanism.from_json(document)
        except ParameterError:
            return
        assert Mechanism.from_json(json.loads(json.dumps(found.to_json()))) == found


MESSAGES = {
    "Heartbeat": {
        "fence": 1,
        "step": 3,
        "steps_per_second": 2.0,
        "features": {"done": 8, "number": 90, "per_second": 4.0},
    },
    "Finish": {"fence": 1, "outcome": "failed", "reason": "out of memory", "retryable": True},
    "SegmentRequest": {"fence": 1, "request_id": "r", "start_step": 0, "num_steps": 5},
    "SegmentEnd": {"fence": 1, "checkpoint": {"step": 5, "path": "/x", "sha256": "ab" * 32}},
    "TrialReport": {
        "fence": 1,
        "trial": {"number": 0, "state": "running", "params": {"learning_rate": 1.0}, "scores": []},
    },
}


class TestWire:
    @pytest.mark.parametrize("name", MESSAGES)
    def test_each_message_is_one(self, name: str) -> None:
        getattr(wire, name).model_validate(MESSAGES[name])

    @pytest.mark.parametrize("name", MESSAGES)
    @given(data=st.data())
    def test_a_message_is_read_or_refused(self, name: str, data: st.DataObject) -> None:
        model: type[BaseModel] = getattr(wire, name)
        document = data.draw(changed(MESSAGES[name]))
        try:
            found = model.model_validate(document)
        except ValidationError:
            return
        assert model.model_validate_json(found.model_dump_json()) == found

    @given(st.binary(max_size=100))
    def test_any_bytes(self, raw: bytes) -> None:
        for name in MESSAGES:
            with pytest.raises(ValidationError):
                getattr(wire, name).model_validate_json(raw)


EXPORT = make_export()


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> dict[str, Any]:
    key = signing_key(tmp_path_factory.mktemp("home"))
    return sign(build(make_facts()), key)


class TestStatement:
    @pytest.mark.slow
    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_a_document_that_was_changed_gets_a_verdict(
        self, signed: dict[str, Any], data: st.DataObject
    ) -> None:
        assert not any(check.is_bad for check in verify_statement(signed))
        document = data.draw(changed(signed))
        if isinstance(document, dict):
            checks = verify_statement(document)
            assert document == signed or any(check.is_bad for check in checks)


class TestExport:
    @settings(max_examples=60)
    @given(data=st.data())
    def test_a_ledger_that_was_changed_gets_a_verdict(self, data: st.DataObject) -> None:
        """Unsigned: whoever holds the key may sign anything."""
        document = data.draw(changed(EXPORT))
        if isinstance(document, dict):
            assert {check.name for check in verify_export(document)} >= {"format"}


SCOPE = Scope(
    scope_id="s",
    name="s",
    unit="record",
    neighboring_relation=MECHANISM.neighboring_relation,
    epsilon=1.0,
    delta=1e-5,
)


class TestJournal:
    @given(
        st.sampled_from(["open", "reserve", "acquire", "begin", "end", "release", "attest"]),
        st.text(max_size=40) | json_values.map(json.dumps),
        st.text(max_size=10),
        st.none() | st.text(max_size=10),
    )
    def test_any_entry_gets_a_verdict(
        self, kind: Any, body: str, digest: str, reservation: str | None
    ) -> None:
        for own in (digest, _hash_of(kind, body, reservation)):
            entry = Entry(
                seq=1, kind=kind, reservation_id=reservation, body=body, prev_hash="", hash=own
            )
            report = verify(SCOPE, Head(seq=1, hash=own), [entry], [])
            assert report.is_valid == (report.fault is None)
            assert not report.is_valid or kind == "open"


def _hash_of(kind: str, body: str, reservation: str | None) -> str:
    try:
        return entry_hash("s", 1, kind, reservation, body, "")
    except UnicodeEncodeError:
        return ""


class TestCursor:
    @given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
    def test_no_text_is_a_place_unless_it_was_given_out(self, token: str) -> None:
        with pytest.raises(InvalidInputError):
            paging.decode(token, TypeAdapter(tuple[str, str]), listing=StudyListing())

    @given(st.text(max_size=30), st.text(max_size=30))
    def test_a_place_that_was_given_out_is_found_again(self, key: str, name: str) -> None:
        token = paging.encode((key, name), listing=StudyListing())
        kind = TypeAdapter(tuple[str, str])
        assert paging.decode(token, kind, listing=StudyListing()) == (key, name)
