"""Signing in to the dashboard, staying signed in, and out again."""

import re
from datetime import timedelta

import pytest

from service.auth.sessions import COOKIE, LIFETIME_SECONDS
from service.db.clock import clock
from tests.fixtures.api import BASE_URL, make_spec
from tests.integration.access.conftest import BOOTSTRAP, Caller

ORIGIN = {"Origin": BASE_URL}


async def sign_in(browser, token, **fields):
    return await browser.post("/ui/sign-in", data={"token": token, **fields}, headers=ORIGIN)


async def csrf_token(browser) -> str:
    page = (await browser.get("/")).text
    return re.search(r'"X-CSRF-Token": "([0-9a-f]{64})"', page)[1]


@pytest.fixture
async def browser(app):
    """A browser whose user has signed in as admin."""
    browser = Caller(app)
    assert (await sign_in(browser, BOOTSTRAP)).status_code == 303
    return browser


class TestSignIn:
    async def test_a_page_sends_to_the_form_and_back(self, nobody):
        sent = await nobody.get("/ui/studies/s-1?order=best")
        assert sent.status_code == 303
        form = await nobody.get(sent.headers["location"])
        assert form.status_code == 200
        assert 'value="/ui/studies/s-1?order=best"' in form.text
        assert form.headers["referrer-policy"] == "same-origin"  # else the form has no Origin
        back = await sign_in(nobody, BOOTSTRAP, next="/ui/studies/s-1?order=best")
        assert back.headers["location"] == "/ui/studies/s-1?order=best"

    async def test_the_cookie_is_for_this_site_and_no_script(self, nobody):
        answer = await sign_in(nobody, BOOTSTRAP)
        parts = answer.headers["set-cookie"].split("; ")
        assert parts[0].startswith(f"{COOKIE}=bootstrap.")
        assert set(parts[1:]) >= {"HttpOnly", "SameSite=strict", f"Max-Age={LIFETIME_SECONDS}"}
        assert "Secure" not in parts

    async def test_it_is_secure_where_the_page_is(self, nobody):
        url = "https://127.0.0.1:8321"
        answer = await nobody.post(
            f"{url}/ui/sign-in", data={"token": BOOTSTRAP}, headers={"Origin": url}
        )
        assert "Secure" in answer.headers["set-cookie"].split("; ")

    async def test_a_wrong_token_is_told_so(self, nobody):
        answer = await sign_in(nobody, "wrong")
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
        assert "set-cookie" not in answer.headers

    async def test_what_is_not_the_form_is_refused(self, nobody):
        answer = await nobody.post("/ui/sign-in", content="a=1&" * 11, headers=ORIGIN)
        assert answer.status_code == 422

    @pytest.mark.parametrize(
        "elsewhere",
        [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "javascript:x",
            "/a\r\nb: c",
            "",
        ],
    )
    async def test_it_leads_to_no_other_site(self, nobody, elsewhere):
        answer = await sign_in(nobody, BOOTSTRAP, next=elsewhere)
        assert answer.headers["location"] == "/"

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", None])
    async def test_another_sites_form_signs_nobody_in(self, nobody, origin):
        headers = {} if origin is None else {"Origin": origin}
        answer = await nobody.post("/ui/sign-in", data={"token": BOOTSTRAP}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


class TestSession:
    async def test_it_opens_pages_and_what_they_ask_for(self, browser):
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/studies")).status_code == 200

    async def test_a_change_needs_the_token_of_its_pages(self, browser):
        for headers in ({}, {"X-CSRF-Token": "0" * 64}):
            answer = await browser.post("/studies", json=make_spec(), headers=ORIGIN | headers)
            assert answer.status_code == 403
            assert "X-CSRF-Token" in answer.json()["detail"]
        headers = {"X-CSRF-Token": await csrf_token(browser)}
        made = await browser.post("/studies", json=make_spec(), headers=ORIGIN | headers)
        assert made.status_code == 201

    async def test_a_page_of_an_earlier_one_is_told_apart(self, browser):
        headers = ORIGIN | {"X-CSRF-Token": "0" * 64}
        answer = await browser.post("/studies", json=make_spec(), headers=headers)
        assert answer.json()["type"] == "/problems/stale-page"

    async def test_another_session_has_another_token(self, app, browser, admin):
        other = Caller(app)
        await sign_in(other, (await admin.new_token(scopes=["submit"]))["token"])
        assert await csrf_token(other) != await csrf_token(browser)

    async def test_it_goes_as_far_as_its_token(self, app, admin):
        reader = Caller(app)
        await sign_in(reader, (await admin.new_token(scopes=["read"]))["token"])
        headers = ORIGIN | {"X-CSRF-Token": await csrf_token(reader)}
        answer = await reader.post("/studies", json=make_spec(), headers=headers)
        assert answer.status_code == 403
        assert "'submit'" in answer.json()["detail"]

    async def test_it_ends_with_its_token(self, app, admin):
        browser, made = Caller(app), await admin.new_token()
        await sign_in(browser, made["token"])
        assert (await browser.get("/")).status_code == 200
        await admin.delete(f"/tokens/{made['id']}")
        assert (await browser.get("/")).status_code == 303
        assert (await browser.get("/studies")).status_code == 401

    async def test_it_ends_after_twelve_hours(self, browser, monkeypatch):
        async def later(session):
            return await clock(session) + timedelta(seconds=LIFETIME_SECONDS + 1)

        monkeypatch.setattr("service.auth.authenticator.clock", later)
        assert (await browser.get("/")).status_code == 303

    @pytest.mark.parametrize("cookie", ["x", "bootstrap.99999999999." + "0" * 64, "a.1.", "\x7f"])
    async def test_a_forged_one_opens_nothing(self, nobody, cookie):
        answer = await nobody.get("/studies", headers={"Cookie": f"{COOKIE}={cookie}"})
        assert answer.status_code == 401

    async def test_signing_out_forgets_it(self, browser):
        refused = await browser.post("/ui/sign-out", headers=ORIGIN)
        assert refused.status_code == 403
        fields = {"csrf_token": await csrf_token(browser)}
        assert (await browser.post("/ui/sign-out", data=fields, headers=ORIGIN)).status_code == 303
        assert (await browser.get("/")).status_code == 303

    async def test_a_page_without_a_session_has_no_way_out(self, client):
        page = (await client.get("/")).text
        assert "X-CSRF-Token" not in page
        assert "Sign out" not in page


async def test_a_browser_that_is_lost_is_led_to_sign_in_and_a_program_is_not(app, nobody):
    seen = await nobody.get("/studeis/s-1?a=b", headers={"Accept": "text/html"})
    assert (seen.status_code, seen.headers["location"]) == (
        303,
        "/ui/sign-in?next=/studeis/s-1%3Fa%3Db",
    )
    for path, accept in (("/studeis/s-1", "*/*"), ("/studies/s-1", "text/html")):
        assert (await nobody.get(path, headers={"Accept": accept})).status_code == 401
