"""Tokens, scopes, sessions and rate limits, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.auth.scopes import Principal, Scope
from service.auth.sessions import LIFETIME_SECONDS, Session, Signer
from service.auth.tokens import Token, digest
from service.rate_limit import MAX_KEYS, Buckets, RateLimit, parse_rate_limit
from tan_core.log_records import without_secrets

DIGEST = digest("secret")


class TestToken:
    def test_what_is_shown_is_read_again(self):
        token = Token.new()
        assert Token.parse(str(token)) == token

    def test_a_secret_is_256_bits_and_never_the_same(self):
        secrets = {Token.new().secret for _ in range(100)}
        assert len(secrets) == 100
        assert {len(bytes.fromhex(secret)) for secret in secrets} == {32}

    def test_it_hides_its_secret_from_whoever_prints_it_by_mistake(self):
        token = Token.new()
        assert token.secret not in repr(token)

    def test_a_log_keeps_its_id_only(self):
        token = Token.new()
        assert without_secrets(f"got {token}.") == f"got tan_{token.id}_***."

    @pytest.mark.slow
    @given(st.text())
    def test_nothing_else_is_a_token(self, text):
        assert Token.parse(text) is None

    @pytest.mark.parametrize(
        "change",
        [lambda t: t[:-1], lambda t: t + "0", lambda t: t.upper(), lambda t: t + "\n"],
        ids=["shorter", "longer", "upper case", "a line"],
    )
    def test_a_token_that_was_changed_is_not_one(self, change):
        assert Token.parse(change(str(Token.new()))) is None


class TestPrincipal:
    @pytest.mark.parametrize(
        ("given", "implied"),
        [
            (["read"], "read"),
            (["submit"], "submit read"),
            (["approve"], "approve read"),
            (["submit", "approve"], "submit approve read"),
            (["audit"], "audit read"),
            (["admin"], "read submit approve audit admin"),
        ],
    )
    def test_scopes_imply_others(self, given, implied):
        assert Principal.of("id", "acme", given).scopes == set(map(Scope, implied.split()))

    def test_only_admins_and_auditors_see_every_tenant(self):
        assert Principal.of("id", "acme", ["submit", "approve"]).sees == "acme"
        assert Principal.of("id", "acme", ["audit"]).sees is None
        assert Principal.of("id", "acme", ["admin"]).sees is None

    def test_only_an_admin_reaches_every_tenant(self):
        assert Principal.of("id", "acme", ["audit", "submit", "approve"]).reaches == "acme"
        assert Principal.of("id", "acme", ["admin"]).reaches is None

    @pytest.mark.parametrize(
        ("given", "widest"),
        [
            (["read"], ["read"]),
            (["submit", "read"], ["submit"]),
            (["audit", "approve"], ["approve", "audit"]),
            (["admin", "audit"], ["admin"]),
        ],
    )
    def test_it_is_told_by_its_widest_scopes(self, given, widest):
        assert Principal.of("id", "acme", given).widest == widest


class TestSession:
    signer = Signer(b"s" * 32)

    def test_it_holds_for_twelve_hours(self):
        session = Session.parse(str(self.signer.issue("abc", DIGEST, now=1000.0)))
        assert session is not None
        assert self.signer.is_issued(session, DIGEST)
        assert not session.has_ended(now=1000.0 + LIFETIME_SECONDS - 1)
        assert session.has_ended(now=1000.0 + LIFETIME_SECONDS)

    def test_nobody_else_can_make_or_lengthen_one(self):
        session = self.signer.issue("abc", DIGEST, now=1000.0)
        forged = [
            Session("xyz", session.expires_at, session.signature),
            Session("abc", session.expires_at + 1, session.signature),
            Signer(b"t" * 32).issue("abc", DIGEST, now=1000.0),
        ]
        assert not any(self.signer.is_issued(each, DIGEST) for each in forged)

    def test_it_stands_for_the_very_secret_it_was_issued_for(self):
        session = self.signer.issue("abc", DIGEST, now=1000.0)
        assert not self.signer.is_issued(session, digest("another"))

    def test_every_session_has_a_csrf_token_of_its_own(self):
        first, second = (self.signer.issue("abc", DIGEST, now=now) for now in (1000.0, 1001.0))
        assert self.signer.csrf_token(first) == self.signer.csrf_token(first)
        assert self.signer.csrf_token(first) != self.signer.csrf_token(second)
        assert self.signer.csrf_token(first) != first.signature

    @given(st.text())
    def test_any_cookie_can_be_read(self, cookie):
        Session.parse(cookie)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestBuckets:
    def test_a_burst_then_the_rate(self):
        clock = Clock()
        buckets = Buckets(RateLimit(per_second=2, burst=3), clock=clock)
        assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
        clock.now += 0.5
        assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
        assert buckets.take("b") == 0

    def test_waiting_takes_nothing(self):
        buckets = Buckets(RateLimit(per_second=1, burst=1), clock=Clock())
        assert [buckets.wait("a") for _ in range(3)] == [0, 0, 0]

    @given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 10), st.floats(1, 10))
    def test_no_more_than_burst_and_rate_allow(self, pauses, per_second, burst):
        clock = Clock()
        buckets = Buckets(RateLimit(per_second, burst), clock=clock)
        taken = 0
        for pause in pauses:
            clock.now += pause
            taken += buckets.take("a") == 0
        assert taken <= burst + per_second * clock.now + 1e-6

    def test_addresses_without_end_fill_no_memory(self):
        buckets = Buckets(RateLimit(per_second=1, burst=1), clock=Clock())
        for number in range(MAX_KEYS + 100):
            buckets.take(str(number))
        assert len(buckets._levels) == MAX_KEYS

    @pytest.mark.parametrize("text", ["", "5", "0,10", "-1,10", "5,0", "5,10,15", "nan,1", "a,b"])
    def test_a_setting_that_says_nothing_sensible_is_refused(self, text):
        with pytest.raises(ValueError, match="REQUESTS_PER_SECOND,BURST"):
            parse_rate_limit(text)

    def test_a_setting_names_rate_and_burst(self):
        assert parse_rate_limit("20,40.5") == RateLimit(20, 40.5)
