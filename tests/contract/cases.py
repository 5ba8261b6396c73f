"""The schema's cases, with what no schema knows: names of what is there, and the token that fits."""

import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, CheckFunction, load_all_checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.generation.meta import TestPhase

from tests.contract.conftest import TOKEN, ServedApi, document
from tests.fixtures.api import make_spec

load_all_checks()
# A body may be valid JSON and yet an impossible study: 422 is the right answer to it.
IMPOSSIBLE = CHECKS.get_one("positive_data_acceptance")
REFUSED = CHECKS.get_one("negative_data_rejection")
NOT_SPOILT = "Positive test case"
"""Of a bad case that nothing was found to spoil in."""
STREAMS = {"follow_events", "read_log"}
"""Of a study that is not over they have no end."""
ACCEPTED = make_spec(privacy={"epsilon": 0.25})


SCHEMA = schemathesis.openapi.from_dict(document())
served: list[ServedApi] = []
"""The one that cases are made for, once it is there."""


@SCHEMA.hook
def before_generate_case(
    context: schemathesis.HookContext, strategy: st.SearchStrategy[schemathesis.Case]
) -> st.SearchStrategy[schemathesis.Case]:
    """Half of the good cases are about something that is there; half of the studies can be run."""

    @st.composite
    def about_something(draw: st.DrawFn) -> schemathesis.Case:
        case = draw(strategy)
        meta = case.meta
        if not served or (meta and meta.generation.mode is GenerationMode.NEGATIVE):
            return case
        name = case.operation.definition.raw["operationId"]
        if name == "submit_study" and draw(st.booleans()):
            case.body, case.media_type = ACCEPTED, "application/json"
        if meta and meta.phase.name is TestPhase.STATEFUL:
            return case  # links say what it is about
        known = {**served[0].subjects}
        if name in STREAMS:
            known["study_id"] = served[0].final
        for subject in sorted(known.keys() & case.path_parameters.keys()):
            if draw(st.booleans()):
                case.path_parameters[subject] = draw(st.sampled_from(known[subject]))
        return case

    return about_something()


def excluded(case: schemathesis.Case) -> list[CheckFunction]:
    """What is not asked of the answer."""
    of_headers = case.meta and case.meta.components.get(ParameterLocation.HEADER)
    if of_headers and of_headers.mode is GenerationMode.NEGATIVE:
        return [IMPOSSIBLE, REFUSED]  # what it lacked may be the token that it is given here
    if case.meta and getattr(case.meta.phase.data, "description", None) == NOT_SPOILT:
        return [IMPOSSIBLE, REFUSED]
    return [IMPOSSIBLE]


def headers(api: ServedApi, case: schemathesis.Case) -> dict[str, str]:
    """What lets the case in: a user's token, or that of the attempt which it says it is."""
    run_id = case.path_parameters.get("run_id")
    token = TOKEN
    if run_id is not None:
        body = case.body if isinstance(case.body, dict) else {}
        fence = body.get("fence", (case.query or {}).get("fence"))
        token = api.driver_token(str(run_id), fence)
    return {"Authorization": f"Bearer {token}"}
