"""``tan-cli token`` and ``tan-cli audit`` against recorded answers."""

import json
from datetime import UTC, datetime

import pytest

TOKEN = {
    "id": "0a1b2c3d4e5f",
    "name": "alice",
    "tenant": "vision",
    "scopes": ["submit", "approve"],
    "created_by": "bootstrap",
    "created_at": "2026-01-02T12:00:00Z",
    "expires_at": "2026-04-02T12:00:00Z",
    "revoked_at": None,
    "last_used_at": None,
}
TEXT = "tan_0a1b2c3d4e5f_" + "ab" * 32
EVENT = {
    "id": 7,
    "at": "2026-01-02T12:00:00Z",
    "token_id": "0a1b2c3d4e5f",
    "token_name": "alice",
    "tenant": "vision",
    "address": "192.0.2.1",
    "method": "POST",
    "route": "/studies/{study_id}/cancel",
    "target": "s-0123456789ab",
    "status": 403,
    "request_id": "r",
}


class TestCreate:
    def test_the_token_alone_is_on_standard_output(self, cli, server):
        server.answers["POST /tokens"] = (201, {**TOKEN, "token": TEXT})
        done = cli(
            *("token", "create", "alice", "--scope", "submit", "--scope", "approve"),
            *("--tenant", "vision", "--expires", "90d"),
        )
        assert (done.code, done.out) == (0, f"{TEXT}\n")
        assert "asks everybody for a token" in done.err
        assert "submit, approve in tenant vision" in done.err
        assert server.requests[-1][1] == {
            "name": "alice",
            "scopes": ["submit", "approve"],
            "tenant": "vision",
            "expires_in_seconds": 90 * 86_400,
        }

    def test_as_json(self, cli, server):
        server.answers["POST /tokens"] = (201, {**TOKEN, "token": TEXT})
        done = cli("token", "create", "alice", "--scope", "admin", "--json")
        assert json.loads(done.out)["token"] == TEXT
        assert server.requests[-1][1] == {"name": "alice", "scopes": ["admin"]}

    @pytest.mark.parametrize("expires", ["", "90", "0d", "-1d", "1.5d", "90 d", "9y"])
    def test_a_duration_that_is_none_is_refused_here(self, cli, server, expires):
        done = cli("token", "create", "a", "--scope", "read", "--expires", expires)
        assert done.code == 2
        assert "such as 90d" in done.err
        assert server.requests == []

    def test_a_scope_is_needed(self, cli, server):
        assert cli("token", "create", "a").code == 2
        assert cli("token", "create", "a", "--scope", "root").code == 2
        assert server.requests == []


class TestList:
    def test_every_token_and_its_end(self, cli, server):
        ended = {**TOKEN, "id": "ffffffffffff", "revoked_at": "2026-01-03T12:00:00Z"}
        server.answers["GET /tokens"] = (200, {"items": [TOKEN, ended]})
        out = cli("token", "list").out
        assert "alice" in out
        assert "good until" in out
        assert "revoked" in out
        assert json.loads(cli("token", "list", "--json").out) == [TOKEN, ended]

    def test_none_yet(self, cli, server):
        server.answers["GET /tokens"] = (200, {"items": []})
        assert "tan-cli token create NAME --scope admin" in cli("token", "list").out


def test_revoke(cli, server):
    server.answers["DELETE /tokens/0a1b2c3d4e5f"] = (204, None)
    assert "revoked" in cli("token", "revoke", "0a1b2c3d4e5f").out
    assert json.loads(cli("token", "revoke", "0a1b2c3d4e5f", "--json").out)["revoked"] is True


def test_revoking_the_last_admin_says_what_to_do(cli, server):
    problem = {"detail": "make another admin token first"}
    server.answers["DELETE /tokens/x"] = (409, problem)
    done = cli("token", "revoke", "x")
    assert (done.code, "make another" in done.err) == (1, True)


class TestAudit:
    def test_the_newest_changes(self, cli, server):
        server.answers["GET /audit"] = (200, {"items": [EVENT], "next_cursor": None})
        out = cli("audit").out
        assert "POST /studies/{study_id}/cancel" in out
        assert "403" in out
        assert json.loads(cli("audit", "--json").out) == [EVENT]

    def test_filters_go_to_the_server_by_its_names(self, cli, server):
        server.answers["GET /audit"] = (200, {"items": [EVENT], "next_cursor": None})
        out = cli(
            *("audit", "--target", "s-1", "--action", "promote", "--actor", "alice"),
            *("--since", "2026-01-31"),
        ).out
        assert "alice" in out
        assert server.queries == [
            {
                "target": "s-1",
                "action": "promote",
                "actor": "alice",
                "since": "2026-01-31T00:00:00+00:00",
                "limit": "50",
            }
        ]

    def test_some_time_ago_is_a_time(self, cli, server):
        server.answers["GET /audit"] = (200, {"items": [], "next_cursor": None})
        assert "nothing fits" in cli("audit", "--since", "7d").out
        since = datetime.fromisoformat(server.queries[0]["since"])
        assert 7 * 86_400 <= (datetime.now(UTC) - since).total_seconds() < 7 * 86_400 + 60

    def test_no_time_is_refused_here(self, cli, server):
        done = cli("audit", "--since", "yesterday")
        assert (done.code, "such as 7d" in done.err) == (2, True)
        assert server.requests == []

    @pytest.mark.parametrize("flag", [(), ("--json",)])
    def test_a_refusal_is_told_as_any_other(self, cli, server, flag):
        detail = "this needs a token with the scope 'audit'"
        server.answers["GET /audit"] = (403, {"detail": detail})
        done = cli("audit", *flag)
        assert (done.code, done.out) == (1, "")
        assert f"error: {detail}\n" in done.err

    def test_page_by_page_up_to_the_limit(self, cli, server):
        server.answers["GET /audit"] = (200, {"items": [EVENT] * 1000, "next_cursor": "7"})
        assert len(json.loads(cli("audit", "--limit", "2000", "--json").out)) == 2000
        assert [query.get("cursor") for query in server.queries] == [None, "7"]
        assert [query["limit"] for query in server.queries] == ["1000", "1000"]
