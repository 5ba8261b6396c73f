import copy
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.pld_pmf import SparsePLDPmf
from rich.console import Console

from service.cli import privacy_view
from service.datasets.schemas import OverlapView, SharedRecords
from service.evaluation import BASELINE_NOTE, NOTE
from service.ledger.notes import search_note
from service.ledger.schemas import Beside, Head
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.statements import statement as statements
from service.statements import verify
from service.statements.facts import Charge, Facts, LedgerEntry
from service.statements.statement import OF_A_CAP, OF_USERS, StatementError, build
from service.statements.verify import (
    EventError,
    agrees,
    epsilon_of_events,
    verify_statement,
)
from tan_core.accounting import gdp_epsilon, price
from tan_core.accounting.effort import limited_effort
from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling
from tan_core.spec import StudySpec
from tan_core.spec.study import Metric
from tan_core.spec.train import Precision
from tan_core.wire import Evaluation, PrivateResult, TrialWeights
from tests.privacy_faults import STATEMENT_FAULTS
from tests.support.evaluations import evaluation, with_small_parts

MECHANISM = Mechanism(sampling_rate=0.1, noise_multiplier=3.0, clip_norm=1.0, steps=104)


def make_spec(accountant="pld", accounting="declared_unaccounted"):
    space = {"space": {"learning_rate": {"low": 0.25, "high": 4.0, "log": True}}}
    return StudySpec.model_validate(
        {
            "name": "digits-eps3",
            "privacy": {"epsilon": 3.0, "delta": 1e-5, "accountant": accountant},
            "dataset": "digits",
            "model": {"name": "linear"},
            "search": {"accounting": accounting, **({} if accounting == "no_search" else space)},
        }
    )


def make_facts(*, released=100, charged=102, **changes):
    facts = Facts(
        study_id="s-1",
        study_name="digits-eps3",
        spec=make_spec(),
        dataset_name="digits",
        dataset_sha256="ab" * 32,
        search_dataset="digits",
        overlaps={},
        unit="record",
        records_per_unit=1,
        is_public=False,
        num_examples=1437,
        planned_steps=100,
        precision=Precision.FLOAT32,
        waiver="owner: published data",
        result=PrivateResult(
            steps=released,
            test_accuracy=0.9,
            num_test=180,
            model_path="/x",
            model_sha256="cd" * 32,
            train_seconds=1.0,
            software={"torch": "2"},
        ),
        charge=Charge(
            mechanism=MECHANISM,
            charged_steps=charged,
            reserved_steps=104,
            entry=LedgerEntry(
                scope="dataset:digits",
                reservation="s-1",
                seq=7,
                hash="ef" * 32,
                budget_epsilon=100.0,
                budget_delta=1e-3,
                head=Head(seq=9, hash="01" * 32),
                charged_epsilon=4.5,
                accountant="pld",
                beside=Beside(
                    unaccounted_searches=2,
                    search_note=search_note(2),
                    unaccounted_baselines=0,
                    restored_backups=0,
                ),
            ),
        ),
        issued_at=datetime(2026, 1, 1, tzinfo=UTC),
        versions={"tan-search": "0"},
    )
    return replace(facts, **changes)


def shown(document):
    console = Console(width=160)
    with console.capture() as captured:
        console.print(privacy_view.statement(document))
    return captured.get()


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return signing_key(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def document(key):
    return sign(build(make_facts()), key)


def bad_checks(document, **kwargs):
    return [check.name for check in verify_statement(document, **kwargs) if check.is_bad]


def body(document):
    """A copy of what was signed."""
    return copy.deepcopy({key: part for key, part in document.items() if key != "signature"})


class TestBuild:
    def test_epsilon_is_that_of_the_charged_steps_not_of_the_released_ones(self):
        statement = build(make_facts(released=100, charged=104))

        assert statement["events"] == [MECHANISM.to_json()]
        assert statement["steps"]["charged_again"] == 4
        assert (
            statement["privacy"]["epsilon"] > build(make_facts(charged=100))["privacy"]["epsilon"]
        )

    def test_the_commit_of_the_code_is_signed_and_null_where_it_is_not_known(self, key):
        document = sign(build(make_facts(code_commit="12" * 20)), key)

        assert build(make_facts())["code_commit"] is None
        assert bad_checks(document) == []
        assert f"commit {'12' * 20}" in shown(document)
        assert "commit" not in shown(sign(build(make_facts()), key))
        document["code_commit"] = "34" * 20
        assert bad_checks(document) != []

    def test_the_image_that_executed_the_run_is_signed_and_null_where_it_is_not_known(self, key):
        image = f"registry.example.org/tan-search-worker@sha256:{'ab' * 32}"
        document = sign(build(make_facts(container_image=image)), key)

        assert build(make_facts())["container_image"] is None
        assert bad_checks(document) == []
        assert f"sha256:{'ab' * 32}" in shown(document)
        document["container_image"] = "tan-search-worker:0.1.0"
        assert bad_checks(document) != []

    def test_pretraining_is_declared_and_covered_by_the_signature(self, key):
        spec = make_spec().model_dump(mode="json")
        pretrained = {"path": "a.pt", "data": "ImageNet; public", "sha256": "12" * 32}
        spec["model"]["pretrained"] = pretrained
        facts = make_facts(spec=StudySpec.model_validate(spec))

        declared = build(facts)["pretraining"]
        document = sign(build(facts), key)

        assert (declared["data"], declared["sha256"]) == ("ImageNet; public", "12" * 32)
        assert declared["trained"] == "all"
        assert "not checked" in declared["note"]
        assert bad_checks(document) == []
        document["pretraining"]["data"] = "none"
        assert bad_checks(document) != []
        assert build(make_facts())["pretraining"]["data"] is None

    @pytest.mark.parametrize(
        ("train", "told"),
        [
            ("norms", "scale and shift of its normalisations and the classifier were trained here"),
            ("biases", "its biases and the classifier were trained here"),
            (
                "lora",
                "low-rank factors beside its linear layers and the classifier were trained here",
            ),
        ],
    )
    def test_which_part_of_a_checkpoint_was_trained_is_said(self, train, told):
        spec = make_spec().model_dump(mode="json")
        pretrained = {"path": "a.pt", "data": "public", "sha256": "12" * 32, "train": train}
        spec["model"] = {"name": "vit-tiny", "pretrained": pretrained}

        declared = build(make_facts(spec=StudySpec.model_validate(spec)))["pretraining"]

        assert declared["trained"] == train
        assert declared.get("rank") == (8 if train == "lora" else None)
        assert told in declared["note"]
        assert "all else is as the file has it" in declared["note"]

    @pytest.mark.parametrize("has_file", [False, True])
    def test_weights_that_foreign_code_made_are_not_said_to_be_random(self, has_file):
        spec = make_spec().model_dump(mode="json")
        pretrained = {"path": "a.pt", "data": "ImageNet; public", "sha256": "12" * 32}
        spec["model"] = {"name": "python:lab.models:small"}
        spec["model"] |= {"pretrained": pretrained} if has_file else {}

        declared = build(make_facts(spec=StudySpec.model_validate(spec)))["pretraining"]

        assert "made by the code of lab.models, which was not checked" in declared["note"]
        assert "random" not in declared["note"]
        assert declared["data"] == ("ImageNet; public" if has_file else None)
        ours = build(make_facts())["pretraining"]
        assert ours == {"data": None, "note": "weights start from a random initialisation"}

    def test_the_precision_is_named_and_epsilon_does_not_depend_on_it(self, key):
        exact, rounded = (build(make_facts(precision=precision)) for precision in Precision)

        assert exact["training"] == {"precision": "float32"}
        assert rounded["training"] == {"precision": "bfloat16"}
        assert rounded["privacy"] == exact["privacy"]
        assert rounded["events"] == exact["events"]
        [added] = set(rounded["assumptions"]) - set(exact["assumptions"])
        assert added.startswith("The passes through the model ran in bfloat16")
        assert "may let one record move the gradients of others" in added
        document = sign(rounded, key)
        assert bad_checks(document) == []
        document["training"]["precision"] = "float32"
        assert bad_checks(document) != []

    def test_the_unit_is_a_user_where_a_column_names_them(self):
        facts = make_facts(unit="writer", records_per_unit=4)

        statement, of_records = build(facts), build(make_facts())

        assert statement["unit"] == "user"
        assert statement["unit_details"] == {"column": "writer", "records_per_unit": 4}
        assert statement["assumptions"][0].startswith("Each user enters each batch")
        assert set(OF_USERS) < set(statement["assumptions"])
        assert statement["privacy"] == of_records["privacy"]
        assert (of_records["unit"], "unit_details" in of_records) == ("record", False)
        assert of_records["assumptions"][0].startswith("Each record enters each batch")
        assert not set(OF_USERS) & set(of_records["assumptions"])

    @pytest.mark.parametrize(
        ("where", "value"),
        [
            (("classes", 2, "private", "accuracy"), 0.9),
            (("classes", 2, "private", "correct"), 11),
            (("classes", 1, "private", "num"), 149),
            (("groups", 0, "baseline", "low"), 0.99),
            (("all", "private", "high"), 0.5),
            (("covered_by_epsilon",), True),
            (("classes",), None),
        ],
    )
    def test_accuracies_by_class_are_signed_and_must_be_those_of_their_counts(
        self, key, where, value
    ):
        facts = make_facts()
        told = Evaluation.model_validate(evaluation(baseline=True))
        result = facts.result.model_copy(update={"evaluation": told})
        said = build(replace(facts, result=result))

        assert said["evaluation"]["covered_by_epsilon"] is False
        assert said["coverage"][-1] == said["evaluation"]["note"] == f"{NOTE} {BASELINE_NOTE}"
        assert bad_checks(sign(said, key)) == []
        assert "evaluation" in [check.name for check in verify_statement(sign(said, key))]
        *path, last = where
        place = said["evaluation"]
        for step in path:
            place = place[step]
        place[last] = value
        assert bad_checks(sign(said, key)) == ["evaluation"]
        assert "evaluation" not in build(facts)

    def test_small_classes_and_groups_are_stated_together_and_add_up(self, key):
        facts = make_facts()
        told = Evaluation.model_validate(with_small_parts())
        result = facts.result.model_copy(update={"evaluation": told})
        document = sign(build(replace(facts, result=result)), key)

        for parts in (document["evaluation"]["classes"], document["evaluation"]["groups"]):
            assert all(part["private"]["num"] >= 10 for part in parts)
            assert parts[-1]["name"] == "(other)"
        assert bad_checks(document) == []

    @pytest.mark.parametrize(("column", "unit"), [("record", "record"), ("writer", "user")])
    def test_the_training_split_is_taken_as_fixed_and_public(self, column, unit):
        [said] = [
            each
            for each in build(make_facts(unit=column, records_per_unit=1))["assumptions"]
            if "training split" in each
        ]
        assert said.startswith(f"Which {unit}s are in the training split is treated as fixed")
        assert f"neighbouring datasets differ in one {unit} of that split" in said

    def test_that_stated_columns_are_public_is_among_the_assumptions(self):
        (said,) = [
            each
            for each in build(make_facts(has_stated_columns=True))["assumptions"]
            if "columns" in each.lower()
        ]

        assert said.endswith("are treated as public.")
        assert not [
            each for each in build(make_facts())["assumptions"] if "columns" in each.lower()
        ]

    def test_that_columns_nobody_named_are_public_is_among_the_assumptions(self):
        (said,) = [
            each
            for each in build(make_facts(has_found_columns=True))["assumptions"]
            if "columns" in each.lower()
        ]

        assert "one record with a word" in said
        assert said.endswith("treated as fixed and public.")

    @pytest.mark.parametrize(("column", "unit"), [("record", "record"), ("writer", "user")])
    @pytest.mark.parametrize(
        ("found", "by"),
        [
            ("has_unnamed_classes", "one {} that alone is of its class"),
            ("has_encoded_images", "in colours where one is not, which one {} may change"),
        ],
    )
    def test_what_one_record_may_change_for_all_is_among_the_assumptions(
        self, found, by, column, unit
    ):
        facts = make_facts(unit=column, records_per_unit=1)

        stated, of_others = (build(each) for each in (replace(facts, **{found: True}), facts))

        [said] = set(stated["assumptions"]) - set(of_others["assumptions"])
        assert by.format(unit) in said
        assert said.endswith("is treated as fixed and public.")

    def test_records_of_other_data_are_among_the_assumptions(self):
        """Of what was trained on, and of what a search read as public."""
        of_staff = SharedRecords(dataset="staff", public=False, shared=1500, of=2500)
        overlap = OverlapView(accepted="Dr. Rivera: they were asked", others=[of_staff])
        before = build(make_facts())["assumptions"]

        said = build(make_facts(overlaps={"open": overlap}))["assumptions"]

        [added] = set(said) - set(before)
        assert added.startswith(
            "1,500 of 2,500 distinct records of open are records of staff too, as was accepted by Dr. Rivera"
        )
        assert added.endswith("treated as public, and no epsilon is for them.")

    def test_the_limits_of_floating_point_are_among_the_assumptions(self):
        said = " ".join(build(make_facts())["assumptions"])
        assert "one record move a sum by slightly more than clip_norm" in said
        assert "tail ends at 8.57 standard deviations at the earliest" in said

    def test_fewer_charged_than_released_steps_are_refused(self):
        with pytest.raises(StatementError, match="99 steps were charged, 100 are in the weights"):
            build(make_facts(released=100, charged=99))

    def test_the_stated_grid_gives_the_very_epsilon_that_was_computed_again(self):
        statement = build(make_facts())
        again = statement["privacy"]["computed_again"]
        accountant = PLDAccountant(value_discretization_interval=again["grid"])
        for event in statement["events"]:
            noise = GaussianDpEvent(float.fromhex(event["noise_multiplier"]))
            step = PoissonSampledDpEvent(float.fromhex(event["sampling_rate"]), noise)
            accountant.compose(step, event["steps"])
        epsilon = accountant.get_epsilon(statement["privacy"]["delta"])
        assert again["epsilon"] == pytest.approx(epsilon, rel=1e-9)

    def test_a_delta_of_the_curve_that_round_off_reaches_is_left_out(self, key):
        """So many steps have an epsilon at the study's delta, and none at a tenth of it."""
        spec = make_spec().model_dump(mode="json")
        many = Mechanism(sampling_rate=0.01, noise_multiplier=8.0, clip_norm=1.0, steps=100_000)
        charge = replace(
            make_facts().charge, mechanism=many, charged_steps=many.steps, reserved_steps=many.steps
        )
        facts = make_facts(released=many.steps, planned_steps=many.steps, charge=charge)
        spec["privacy"]["delta"] = 1e-9
        document = build(replace(facts, spec=StudySpec.model_validate(spec)))

        told = [point["delta"] for point in document["privacy"]["curve"]]
        assert told == pytest.approx([1e-8, 1e-9])
        assert bad_checks(sign(document, key)) == []

    def test_it_says_how_it_is_verified(self):
        verification = build(make_facts())["verification"]
        assert verification["command"].startswith("tan-cli statement --file FILE --verify")
        assert "dp-accounting" in verification["needs"]

    def test_a_disagreement_above_a_thousandth_is_refused(self, monkeypatch):
        honest = statements.recompute

        def one_and_a_half_thousandths_above(*a, **k):
            found = honest(*a, **k)
            return replace(found, epsilon=found.epsilon * 1.0015)

        monkeypatch.setattr(statements, "recompute", one_and_a_half_thousandths_above)
        with pytest.raises(StatementError, match=r"differ by more than 0\.1%"):
            build(make_facts())

    def test_a_renyi_bound_below_pld_is_refused(self, monkeypatch):
        monkeypatch.setattr(statements, "rdp_epsilon_of_events", lambda *a, **k: 0.1)
        with pytest.raises(StatementError, match="one of them is wrong"):
            build(make_facts())

    def test_an_unaccounted_search_is_named_and_has_no_cost(self):
        search = build(make_facts())["search"]
        assert search["note"] == "search on private data NOT accounted"
        assert search["epsilon"] is None
        assert search["waiver"] == "owner: published data"

    def test_a_search_on_public_data_costs_nothing(self):
        search = build(make_facts(spec=make_spec(accounting="public_proxy")))["search"]
        assert search["epsilon"] == 0.0
        assert search["note"] == "hyper-parameters chosen on data registered as public"

    def test_an_accountant_of_the_study_is_the_one_that_is_stated(self):
        privacy = build(make_facts(spec=make_spec(accountant="rdp")))["privacy"]
        assert privacy["accountant"] == "rdp"
        assert privacy["epsilon"] > privacy["epsilon_by_accountant"]["pld"]

    def test_public_data_has_no_ledger_and_protects_nothing(self):
        charge = Charge(mechanism=MECHANISM, charged_steps=100, reserved_steps=None)
        statement = build(make_facts(is_public=True, charge=charge))
        assert statement["ledger"] is None
        assert statement["protects"] is False


class TestACapOnBatches:
    CAPPED = replace(
        MECHANISM,
        sampling=Sampling.TRUNCATED_POISSON,
        neighboring_relation=NeighboringRelation.ZERO_OUT,
        num_examples=1437,
        max_batch_size=160,
    )

    def statement(self):
        facts = make_facts()
        return build(replace(facts, charge=replace(facts.charge, mechanism=self.CAPPED)))

    def test_it_costs_what_the_cap_costs_and_verifies(self, key):
        whole = build(make_facts())["privacy"]["epsilon"]
        document = sign(self.statement(), key)

        assert document["privacy"]["epsilon"] > 1.2 * whole
        assert document["mechanisms"][0]["max_batch_size"] == 160
        assert bad_checks(document) == []

    def test_it_says_that_one_accountant_alone_has_priced_it(self):
        statement = self.statement()

        assert set(OF_A_CAP) < set(statement["assumptions"])
        assert list(statement["privacy"]["epsilon_by_accountant"]) == ["pld"]
        assert not set(OF_A_CAP) & set(build(make_facts())["assumptions"])

    @pytest.mark.parametrize("change", [{"max_batch_size": 10_000}, {"sampling": "poisson"}])
    def test_a_cap_that_was_edited_away_is_found_even_when_it_is_signed(self, key, change):
        statement = self.statement()
        statement["events"][0] |= change

        assert bad_checks(sign(statement, key)) == ["epsilon", "mechanisms"]

    @pytest.mark.parametrize(
        "change",
        [{"max_batch_size": None}, {"max_batch_size": 0}, {"num_examples": 1.5}],
        ids=str,
    )
    def test_sizes_out_of_domain_are_refused(self, change):
        with pytest.raises(EventError, match="out of domain"):
            epsilon_of_events(
                [self.CAPPED.to_json() | change], delta=1e-5, neighboring_relation="zero_out"
            )

    def test_it_has_no_price_between_datasets_of_unlike_size(self):
        event = self.CAPPED.to_json() | {"neighboring_relation": "add_or_remove_one"}

        with pytest.raises(EventError, match="no price"):
            epsilon_of_events([event], delta=1e-5, neighboring_relation="add_or_remove_one")


class TestVerifyStatement:
    def test_an_issued_statement_passes_every_check(self, document):
        assert bad_checks(document) == []
        assert {check.name for check in verify_statement(document)} == {
            "format",
            "signature",
            "signer",
            "epsilon",
            "accountants",
            "curve",
            "steps",
            "mechanisms",
            "coverage",
            "beside epsilon",
        }

    def test_any_edit_breaks_the_signature(self, document):
        edited = copy.deepcopy(document)
        edited["study"]["name"] = "another"
        assert bad_checks(edited) == ["signature"]

    @pytest.mark.parametrize(
        "more", [{"epsilon": 0.1}, {"canonicalization": "none"}, {"algorithm": "none"}], ids=str
    )
    def test_what_is_written_beside_the_signature_is_not_signed(self, document, more):
        edited = copy.deepcopy(document)
        edited["signature"] |= more
        assert bad_checks(edited) == ["signature"]

    def test_a_flattered_epsilon_is_found_even_when_it_is_signed(self, document, key):
        statement = body(document)
        statement["privacy"]["epsilon"] *= 0.99
        assert bad_checks(sign(statement, key)) == ["epsilon"]

    @pytest.mark.parametrize(
        "change",
        [
            {"epsilon_by_accountant": {"pld": 0.5, "rdp": 9.0}},
            {"epsilon_by_accountant": {"rdp": 9.0}},
            {"epsilon_by_accountant": {"gdp": 1.0}},
            {"epsilon_by_accountant": 3},
            {"epsilon_by_accountant": {}},
            {"computed_again": {"epsilon": 0.5}},
            {"computed_again": {}},
            {"computed_again": None},
        ],
        ids=str,
    )
    def test_another_epsilon_beside_it_is_found_even_when_it_is_signed(self, document, key, change):
        statement = body(document)
        statement["privacy"] |= change
        assert bad_checks(sign(statement, key)) == ["accountants"]

    def test_a_lower_figure_of_a_looser_accountant_is_found(self, document, key):
        statement = body(document)
        statement["privacy"]["epsilon_by_accountant"]["rdp"] = statement["privacy"]["epsilon"] / 2
        assert bad_checks(sign(statement, key)) == ["accountants"]

    def test_one_of_before_they_were_told_is_held_to_none_of_them(self, document, key):
        statement = body(document)
        del statement["privacy"]["epsilon_by_accountant"], statement["privacy"]["computed_again"]
        assert bad_checks(sign(statement, key)) == []

    @pytest.mark.parametrize("released", [0, -1, True, 1.5])
    def test_released_steps_that_are_no_count_are_found(self, document, key, released):
        statement = body(document)
        statement["steps"]["released"] = released
        assert bad_checks(sign(statement, key)) == ["steps"]

    @pytest.mark.parametrize("unit", ["household", "user", None])
    def test_another_unit_than_its_details_is_found(self, document, key, unit):
        statement = body(document) | {"unit": unit}
        assert bad_checks(sign(statement, key)) == ["protects"]

    @pytest.mark.parametrize(
        "change",
        [{"ledger": nothing} for nothing in (None, {}, 0, "", "x", [])]
        + [{"protects": False}, {"protects": 1}, {"protects": False, "ledger": 0}],
        ids=str,
    )
    def test_protected_data_that_no_ledger_paid_for_are_found(self, document, key, change):
        """A statement without a ledger is read as one of public data."""
        statement = body(document) | change
        assert "protects" in bad_checks(sign(statement, key))

    def test_an_event_with_fewer_steps_is_found_even_when_it_is_signed(self, document, key):
        statement = body(document)
        statement["events"][0]["steps"] = 50
        assert bad_checks(sign(statement, key)) == ["epsilon", "steps", "mechanisms"]

    def test_a_signature_of_another_key_is_found(self, document, tmp_path):
        forged = sign(body(document), signing_key(tmp_path))
        expected = document["signature"]["key_id"]
        assert bad_checks(forged) == []
        assert bad_checks(forged, key_id=expected) == ["signature"]

    @pytest.mark.parametrize("document", [{}, {"schema": 1}, {"schema": "x"}, {"signature": {}}])
    def test_another_document_is_no_statement(self, document):
        assert bad_checks(document) == ["format"]

    @pytest.mark.parametrize("gone", ["events", "privacy", "steps", "neighboring_relation"])
    def test_a_missing_part_is_a_bad_check_not_a_crash(self, document, key, gone):
        statement = body(document)
        del statement[gone]
        assert bad_checks(sign(statement, key)) != []

    @pytest.mark.parametrize(
        ("place", "name"),
        [
            (("privacy", "epsilon"), "epsilon"),
            (("privacy", "epsilon_by_accountant", "pld"), "accountants"),
            (("privacy", "computed_again", "epsilon"), "accountants"),
            (("search", "epsilon"), "epsilon of the search"),
        ],
    )
    def test_a_figure_that_is_no_number_is_a_bad_check_not_a_crash(self, charged, place, name):
        statement = body(charged)
        *path, last = place
        part = statement
        for each in path:
            part = part[each]
        part[last] = math.nan
        assert {name, "signature"} <= set(bad_checks(statement))

    def test_an_event_that_names_code_is_refused(self, document, key):
        statement = body(document)
        statement["events"][0] |= {"kind": "os.system"}
        assert "epsilon" in bad_checks(sign(statement, key))


class TestEpsilonOfEvents:
    @pytest.mark.parametrize(
        "change",
        [
            {"codec": 2},
            {"sampling": "shuffled"},
            {"neighboring_relation": "replace_one"},
            {"sampling_rate": "nan"},
            {"sampling_rate": 0.5},
            {"sampling_rate": "0.1"},
            {"noise_multiplier": "10"},
            {"noise_multiplier": "-0x1p0"},
            {"noise_multiplier": "inf"},
            {"steps": 0},
            {"steps": True},
            {"steps": 1.5},
        ],
        ids=str,
    )
    def test_what_is_unknown_or_out_of_domain_is_refused(self, change):
        with pytest.raises(EventError):
            epsilon_of_events(
                [MECHANISM.to_json() | change],
                delta=1e-5,
                neighboring_relation="add_or_remove_one",
            )

    def test_many_events_are_composed_on_a_grid_of_their_sum(self, monkeypatch):
        """The least of hundreds made it so fine that 200 took a minute."""
        runs = [
            Mechanism(
                sampling_rate=rate, noise_multiplier=noise, clip_norm=1.0, steps=20 + 10 * number
            )
            for number, (rate, noise) in enumerate(
                (rate, noise) for rate in (0.002, 0.02, 0.1) for noise in (2.0, 3.0, 5.0, 9.0)
            )
        ]
        events = [run.to_json() for run in runs]
        asked = {"delta": 1e-5, "neighboring_relation": "add_or_remove_one"}
        found = verify.recompute(events, **asked)
        monkeypatch.setattr(verify, "_FEW_EVENTS", len(events))
        fine = verify.recompute(events, **asked)
        assert found.grid > 10 * fine.grid
        assert fine.epsilon <= found.epsilon <= 1.0005 * fine.epsilon
        assert found.epsilon == pytest.approx(price(runs, delta=1e-5).epsilon, rel=5e-4)

    @pytest.mark.parametrize("steps", [10_000_001, 10**9, 10**400])
    def test_more_steps_than_anyone_is_granted_are_refused_unpriced(self, steps, monkeypatch):
        monkeypatch.setattr(verify, "_grids", lambda *_: pytest.fail("priced"))

        with pytest.raises(EventError, match=r"out of domain: steps = 10+.*, expected 1 to 10,000"):
            epsilon_of_events(
                [MECHANISM.to_json() | {"steps": steps}],
                delta=1e-5,
                neighboring_relation="add_or_remove_one",
            )

    @pytest.mark.slow
    def test_as_many_as_a_study_may_ask_for_are_priced(self):
        """By the closed form of the Gaussian limit; and in no power of integers that no one can stop."""
        event = Mechanism(
            sampling_rate=1e-3, noise_multiplier=5.0, clip_norm=1.0, steps=verify.MAX_STEPS
        )

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SparsePLDPmf, "self_compose", lambda *_, **__: pytest.fail("a power"))
            found = epsilon_of_events(
                [event.to_json()], delta=1e-5, neighboring_relation="add_or_remove_one"
            )

        mu = 1e-3 * math.sqrt(verify.MAX_STEPS * math.expm1(1 / 25))
        limit = gdp_epsilon(mu=mu, delta=1e-5)
        assert limit < found < limit + 0.005

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("rate", "noise", "steps", "delta"),
        [
            (1e-4, 4.0, 10_000_000, 1e-5),
            (1e-5, 4.0, 4_000_000, 1e-5),
            (1e-6, 4.0, 4_000_000, 1e-5),
            (1e-5, 1.0, 1_000_000, 1e-5),
            (6.5e-6, 0.78, 9_322_101, 2.2e-6),
            (1.0, 1e4, 1_000_000, 1e-9),
        ],
    )
    def test_runs_of_tiny_steps_cost_what_was_promised(self, rate, noise, steps, delta):
        """One voice used to let the round-off of a step add up where the other did not."""
        event = Mechanism(sampling_rate=rate, noise_multiplier=noise, clip_norm=1.0, steps=steps)
        stated = price([event], delta=delta).epsilon

        found = epsilon_of_events(
            [event.to_json()], delta=delta, neighboring_relation="add_or_remove_one"
        )

        assert agrees(stated, found, "pld")

    def test_what_would_take_minutes_is_refused(self):
        event = MECHANISM.to_json() | {"noise_multiplier": (0.1).hex(), "steps": verify.MAX_STEPS}

        with pytest.raises(EventError, match="10,000,000 steps of so little noise"):
            epsilon_of_events([event], delta=1e-5, neighboring_relation="add_or_remove_one")

    def test_a_delta_that_round_off_could_hide_in_is_refused(self):
        event = MECHANISM.to_json() | {"noise_multiplier": (300.0).hex(), "steps": 1_000_000}

        with pytest.raises(EventError, match="round-off: no epsilon at delta = 1e-10"):
            epsilon_of_events([event], delta=1e-10, neighboring_relation="add_or_remove_one")

    def test_the_time_it_was_given_holds(self, document):
        with limited_effort(0.0):
            (bad,) = [each for each in verify_statement(document) if each.is_bad]

        assert bad.name == "epsilon"
        assert "processor time" in bad.detail

    def test_no_events_are_refused(self):
        with pytest.raises(EventError, match="no events"):
            epsilon_of_events([], delta=1e-5, neighboring_relation="add_or_remove_one")


class TestAgrees:
    @pytest.mark.parametrize("accountant", ["pld", "rdp", "prv"])
    def test_no_accountant_may_state_less(self, accountant):
        """By more than a thousandth; what is shown of next to nothing has four digits."""
        assert agrees(2.9972, 3.0, accountant)
        assert not agrees(2.9965, 3.0, accountant)
        assert not agrees(0.00085, 0.001, accountant)

    def test_pld_may_not_state_more_either(self):
        assert agrees(3.0035, 3.0, "pld")
        assert not agrees(3.0045, 3.0, "pld")

    def test_prv_states_more_by_the_width_of_its_interval(self):
        assert agrees(3.06, 3.0, "prv")
        assert not agrees(3.07, 3.0, "prv")
        assert agrees(0.12, 0.1, "prv")

    def test_renyi_states_more(self):
        assert agrees(3.3, 3.0, "rdp")

    @pytest.mark.parametrize("stated", [float("nan"), float("inf")])
    def test_what_is_not_a_number_agrees_with_nothing(self, stated):
        assert not agrees(stated, 3.0, "rdp")


TRIALS = Mechanism(sampling_rate=0.05, noise_multiplier=2.0, clip_norm=1.0, steps=300)
SCORES = Mechanism(sampling_rate=1.0, noise_multiplier=20.0, clip_norm=1.0, steps=3)


def of_charged_search(**changes):
    """Of a study whose search was charged: three trials and their scores."""
    facts = make_facts(spec=make_spec(accounting="accounted"), **changes)
    charge = replace(
        facts.charge, search=(TRIALS, SCORES), search_reservations=("s-1-trials", "s-1-scores")
    )
    return build(replace(facts, charge=charge))


@pytest.fixture(scope="module")
def charged(key):
    return sign(of_charged_search(), key)


class TestChargedSearch:
    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
    def test_epsilon_is_of_run_trials_and_scores_by_the_opacus_accountant_too(self, charged):
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = [
            (part.noise_multiplier, min(part.sampling_rate, 1 - 1e-9), part.steps)
            for part in (MECHANISM.with_steps(102), TRIALS, SCORES)
        ]
        found = accountant.get_epsilon(1e-5, eps_error=0.01)

        assert charged["privacy"]["epsilon"] == pytest.approx(found, abs=0.02)
        assert charged["privacy"]["epsilon"] > charged["search"]["epsilon"]
        assert [event["of"] for event in charged["mechanisms"]] == [
            "private run",
            "trials of the search",
            "scores of the trials",
        ]
        assert (charged["search"]["trials"], charged["search"]["waiver"]) == (3, None)
        assert bad_checks(charged) == []

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({}, "the number of validation records that are told right, which one record moves"),
            (
                {"unit": "writer", "records_per_unit": 4},
                "the number of validation users, each counted by the part of its records that is told right, which "
                "one user moves",
            ),
        ],
    )
    def test_what_a_score_counts_is_said_of_what_is_protected(self, changes, words):
        said = of_charged_search(**changes)["assumptions"]
        assert sum(f"A score is {words} by at most one" in each for each in said) == 1

    def test_what_a_balanced_score_counts_and_what_weighs_gradients_is_said(self):
        spec = make_spec(accounting="accounted")
        spec = spec.model_copy(
            update={
                "search": spec.search.model_copy(update={"metric": Metric.BALANCED_ACCURACY}),
                "train": spec.train.model_copy(update={"class_shares": [98.0, 2.0]}),
            }
        )
        facts = make_facts(spec=spec)
        said = build(replace(facts, charge=replace(facts.charge, search=(TRIALS, SCORES))))

        counts = "records, each counted by the least stated share of a class over that of its own"
        assert sum(counts in each for each in said["assumptions"]) == 1
        assert (
            sum(
                "which is at most 1 and follows from class_shares" in each
                for each in said["assumptions"]
            )
            == 1
        )
        assert "class_shares" not in " ".join(of_charged_search()["assumptions"])

    def test_a_run_that_began_with_a_trials_weights_says_so_and_costs_what_it_did(
        self, key, charged
    ):
        begun = TrialWeights(trial=2, path="/storage/t.safetensors", sha256="cd" * 32)
        stated = sign(of_charged_search(begun_from=begun), key)

        assert stated["search"]["run_began_from"] == {"trial": 2, "weights_sha256": "cd" * 32}
        assert "run_began_from" not in charged["search"]
        assert "began with what trial 2 of the search had left" in stated["pretraining"]["note"]
        assert sum("the weights that trial 2 of" in each for each in stated["assumptions"]) == 1
        assert "/storage" not in str(stated)
        assert (stated["privacy"], stated["events"]) == (charged["privacy"], charged["events"])
        assert bad_checks(stated) == []

    def test_one_that_began_with_a_proxys_names_the_data_it_was_trained_on_before(self, key):
        begun = TrialWeights(trial=2, path="/storage/t.safetensors", sha256="cd" * 32)
        spec = make_spec(accounting="public_proxy")
        stated = sign(build(make_facts(spec=spec, begun_from=begun, search_dataset="others")), key)

        assert stated["pretraining"]["data"] == "others"
        assert stated["search"]["run_began_from"]["trial"] == 2
        (said,) = [each for each in stated["assumptions"] if "the weights that trial 2 of" in each]
        assert "others alone, which is registered as public" in said
        assert bad_checks(stated) == []

    @pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
    @pytest.mark.parametrize("fault", STATEMENT_FAULTS, ids=lambda fault: fault.name)
    def test_a_fault_in_what_is_stated_is_found(self, key, fault):
        with fault.seeded():
            faulty = sign(of_charged_search(), key)
        with pytest.raises(AssertionError):
            getattr(self, fault.finding)(faulty)

    def test_a_stranger_is_told_that_scores_are_covered(self, charged):
        assert "scores of all trials" in charged["coverage"][0]
        assert any("with Gaussian noise" in each for each in charged["assumptions"])
        (splits,) = (each for each in charged["assumptions"] if "neighbouring" in each)
        assert "in one record of either split" in splits

    @pytest.mark.parametrize("left_out", [1, 2])
    def test_leaving_a_part_of_the_search_out_is_found(self, charged, key, left_out):
        document = body(charged)
        for each in ("events", "mechanisms"):
            del document[each][left_out]
        less = epsilon_of_events(
            document["events"], delta=1e-5, neighboring_relation="add_or_remove_one"
        )
        document["privacy"] |= {"epsilon": less, "curve": []}

        assert {"steps", "trials"} <= set(bad_checks(sign(document, key)))

    @pytest.mark.parametrize("flattery", [0.9, 2.0])
    def test_another_epsilon_of_the_search_alone_is_found(self, charged, key, flattery):
        document = body(charged)
        document["search"]["epsilon"] *= flattery

        assert bad_checks(sign(document, key)) == ["epsilon of the search"]

    def test_fewer_trials_than_scores_are_found(self, charged, key):
        document = body(charged)
        for each in ("events", "mechanisms"):
            document[each][1]["steps"] -= 100
        document["search"]["steps"]["trials"] -= 100

        assert {"epsilon", "trials"} <= set(bad_checks(sign(document, key)))

    def test_a_statement_that_only_says_so_is_found(self, document, key):
        said = body(document)
        said["search"] = {**said["search"], "accounting": "accounted"}

        assert "trials" in bad_checks(sign(said, key))
