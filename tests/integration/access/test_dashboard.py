"""A tenant's studies in the dashboard: their parts, the editor, and what is done to many at once."""

import json

import pytest

from tests.fixtures.api import make_spec
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page

PARTS = ["", "/trials", "/trials.csv", "/search", "/curves", "/run", "/charts/history.csv"]


@pytest.fixture
async def acme(admin):
    return await admin.befriend(["submit"], tenant="acme")


@pytest.fixture
async def other(admin):
    return await admin.befriend(["submit"], tenant="umbrella")


@pytest.mark.parametrize("part", PARTS)
async def test_what_is_anothers_is_not_there(acme, other, study, part):
    own = await acme.get(f"/ui/studies/{study}{part}")
    refused = await other.get(f"/ui/studies/{study}{part}")

    assert own.status_code == (404 if "charts" in part else 200)  # nothing is drawn yet
    assert refused.status_code == 404
    assert f"there is no study &#39;{study}&#39;" in refused.text


@pytest.mark.parametrize("name", ["", "/trials.csv", "/curves.csv"])
async def test_anothers_trials_are_not_compared(acme, other, study, name):
    address = f"/ui/studies/{study}/trials/compare{name}?trial=0&trial=1&rung=0"
    own = await acme.get(address)
    refused = await other.get(address)

    assert (own.status_code, refused.status_code) == (404, 404)
    assert "has no trial 0, 1" in own.text  # yet
    assert f"there is no study &#39;{study}&#39;" in refused.text


async def test_anothers_is_no_pattern(acme, other, study):
    assert (await acme.get(f"/ui/new?like={study}")).status_code == 200
    assert (await other.get(f"/ui/new?like={study}")).status_code == 404


async def test_anothers_is_not_among_many(acme, other, study):
    chosen = {"action": "cancel", "study": [study]}

    refused = await other.post("/ui/studies/bulk", data=chosen)
    granted = await acme.post("/ui/studies/bulk", data=chosen)

    assert refused.json()["detail"] == f"0 of 1 done; {study}: there is no study {study!r}"
    assert granted.status_code == 204


async def test_a_reader_changes_nothing(admin, study):
    reader = await admin.befriend(["read"], tenant="acme")

    for path in ("/ui/studies/bulk", "/ui/new", "/ui/register"):
        answer = await reader.post(path, data={"action": "cancel", "study": [study]})
        assert answer.status_code == 403


class TestWhoOneIs:
    """A page offers what its reader may do, says who that is, and what is missing."""

    @pytest.fixture
    async def waiting(self, app):
        return await seeding.awaiting_approval(app.state.context)

    @staticmethod
    def buttons(page: Page) -> set[str]:
        """What a click would ask the service to change."""
        asked = [a.get("hx-post") or a.get("hx-put") for _, a in page.elements]
        return {address.rpartition("/")[2] for address in asked if address}

    async def test_a_reader_is_offered_nothing_and_told_why(self, admin, waiting):
        reader = await admin.befriend(["read"], name="rita", tenant="local")

        page = Page((await reader.get(f"/ui/studies/{waiting}")).text)

        assert self.buttons(page) == set()
        assert page.text["who"] == "rita · read · tenant local"
        assert page.text["may-not"] == (
            "rita may not approve, pause, end or cancel this study: that needs a token of the tenant local "
            "with the scopes approve and submit, or an admin’s."
        )

    async def test_each_scope_has_its_buttons(self, admin, waiting):
        path = f"/ui/studies/{waiting}"
        submitter = await admin.befriend(["submit"], tenant="local")
        approver = await admin.befriend(["approve"], tenant="local")
        assert self.buttons(Page((await submitter.get(path)).text)) == {
            "pause",
            "cancel",
            "bulk",
            "note",
        }
        assert self.buttons(Page((await approver.get(path)).text)) == {"promote"}
        whole = Page((await admin.get(path)).text)
        assert self.buttons(whole) == {"promote", "pause", "cancel", "bulk", "note"}
        assert "may-not" not in whole.text
        assert whole.text["who"] == "TAN_API_TOKEN · admin"

    async def test_an_auditor_of_another_tenant_is_offered_nothing(self, admin, waiting):
        auditor = await admin.befriend(["audit", "submit", "approve"], tenant="supervision")
        page = Page((await auditor.get(f"/ui/studies/{waiting}")).text)
        assert self.buttons(page) == set()
        assert "of the tenant local" in page.text["may-not"]

    async def test_lists_and_the_editor_offer_no_more(self, admin, waiting):
        reader = await admin.befriend(["read"], tenant="local")
        for path in ("/", "/ui/datasets/digits"):
            page = Page((await reader.get(path)).text)
            assert self.buttons(page) <= {"verify"}
        assert "/ui/new" not in [a.get("href") for a in page.all("a")]
        editor = Page((await reader.get("/ui/new")).text)
        assert not [a for a in editor.all("button") if a.get("name") == "action"]
        assert "may not check or submit" in editor.text["verdict"]
        assert "evaluations" in self.buttons(Page((await admin.get("/ui/datasets/digits")).text))

    async def test_only_an_admin_may_register_data(self, admin, waiting):
        submitter = await admin.befriend(["submit", "approve"], tenant="local")
        page = Page((await submitter.get("/ui/register")).text)
        assert not [a for a in page.all("button") if a.get("name") == "action"]
        assert "may not register a dataset" in page.text["verdict"]
        assert "/ui/register" not in [
            a.get("href") for a in Page((await submitter.get("/ui/datasets")).text).all("a")
        ]
        assert (await submitter.post("/ui/register", data={"yaml": "a: 1"})).status_code == 403
        assert "Check" in (await admin.get("/ui/register")).text

    async def test_only_an_admin_may_let_private_runs_wait(self, admin, waiting):
        path = "/ui/datasets/digits"
        approver = await admin.befriend(["submit", "approve"], tenant="local")
        for rule, words in (("required", "every private run waits"), ("automatic", "where its")):
            page = Page((await admin.get(path)).text)
            (button,) = [each for each in page.all("button") if each.get("hx-put")]
            asked = json.loads(button["hx-vals"] or "")
            assert asked == {"approval": rule}
            refused = await approver.put(button["hx-put"], json=asked)
            assert refused.status_code == 403
            assert (await admin.put(button["hx-put"], json=asked)).json()["approval"] == rule

            seen = Page((await approver.get(path)).text)
            assert words in seen.text["approval"]
            assert "needs the scope admin" in seen.text["may-not-rule"]
            assert "approval" not in self.buttons(seen)
            assert "may-not-rule" not in Page((await admin.get(path)).text).text

    async def test_the_audit_is_linked_where_it_may_be_seen(self, admin, nobody):
        reader = await admin.befriend(["read"])
        auditor = await admin.befriend(["audit"])
        for caller, is_there in ((reader, False), (auditor, True), (admin, True)):
            hrefs = [a.get("href") for a in Page((await caller.get("/")).text).all("a")]
            assert ("/ui/audit" in hrefs) is is_there
            assert (await caller.get("/ui/audit")).status_code == (200 if is_there else 403)
        assert "who" not in Page((await nobody.get("/ui/sign-in")).text).text


class TestWhatATenantMayNotSee:
    async def test_statements_of_others_are_not_said_to_be_none(self, app, admin):
        await seeding.completed(app.state.context)
        other = await admin.befriend(["read"], tenant="umbrella")

        page = Page((await other.get("/ui/datasets/digits")).text)

        assert "No study that you may see has been completed" in page.text["statements"]
        assert "No study that" not in (await admin.get("/ui/datasets/digits")).text

    async def test_how_anothers_search_was_accounted_is_the_ledgers_to_say(self, app, admin):
        await seeding.training(app.state.context)
        other = await admin.befriend(["read"], tenant="umbrella")

        page = Page((await other.get("/ui/datasets/digits")).text)

        assert "search on private data NOT accounted" in page.text["reservations"]


async def test_how_often_a_test_split_was_read_is_counted(app, admin):
    first = await seeding.completed(app.state.context)
    text = (await admin.get(f"/ui/studies/{first}")).text
    assert "360</data> test examples, read once by this run</span>" in text
    await seeding.completed(app.state.context, name="second")
    page = (await admin.get(f"/ui/studies/{first}")).text
    assert "read once by this run; <data" in page
    assert "runs have read them" in page
    assert "read by 2 runs" in (await admin.get("/ui/datasets/digits")).text


async def test_no_budget_is_listed_without_what_it_means_nothing_without(admin):
    text = (await admin.get("/ui/datasets")).text
    assert "by PLD, neighbours: add or remove one" in text
    assert "1,295</data> examples</span></td>" in text


async def test_users_are_not_called_examples(app, admin, tmp_path):
    rows = ["a,b,label,who", *(f"{i / 7:.3f},{i % 5},{i % 2},u{i % 40}" for i in range(400))]
    path = tmp_path / "users.csv"
    path.write_text("\n".join(rows) + "\n")
    asked = {"path": str(path), "unit": "who", "epsilon": 10, "delta": 1e-4}
    app.state.context.settings.allowed_data_dirs = (tmp_path,)
    made = await admin.post(
        "/datasets",
        json={"name": "people", "waiver": "owner: a test", **asked},
    )
    assert made.status_code == 201, made.text
    users = made.json()["num_train"]
    assert f"{users}</data> users<span" in (await admin.get("/ui/datasets")).text
    spec = make_spec(dataset="people", train={"batch_size": 8, "steps": 10})
    study = (await admin.post("/studies", json=spec)).json()
    page = Page((await admin.get(f"/ui/studies/{study['id']}")).text)
    assert f"{users} training users" in page.text["plan"]
