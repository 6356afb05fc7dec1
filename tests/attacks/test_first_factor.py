"""The first factor voids everything issued before it. The attacker shares the victim's address."""

from typing import Any

from tests.attacks.victims import TICKET, Victim
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api


def is_rejected(response: Any) -> bool:
    return bool(
        response.status_code in (401, 403) and "secret" not in response.json() and "challenge" not in response.json()
    )


def test_window_closes_with_the_first_factor(victim: Victim) -> None:
    assert victim.begin_passkey().status_code == 200
    victim.enroll_totp()
    assert is_rejected(victim.begin_passkey())
    assert is_rejected(victim.begin_totp())
    assert victim.methods() == ["totp", "backup_code"]


def test_window_closes_with_a_sign_in_from_another_address(victim: Victim) -> None:
    assert victim.sign_in(Api()).status_code == 200
    assert is_rejected(victim.begin_passkey())
    assert is_rejected(victim.begin_totp())


def test_older_ticket_ends_with_the_first_factor(victim: Victim) -> None:
    by = {TICKET: victim.older_ticket}
    assert victim.begin_passkey(headers=by).status_code == 200
    victim.enroll_totp()
    assert is_rejected(victim.begin_passkey(headers=by))


def test_password_only_token_ends_with_the_first_factor(victim: Victim) -> None:
    victim.enroll_totp()
    stolen = Api(token=victim.token)
    for response in (
        victim.begin_totp(token=victim.token),
        victim.begin_passkey(token=victim.token),
        stolen.post(f"{victim.totp}/disable", victim.user_fields),
        stolen.get("/webauthn/factors"),
        stolen.get("/authmgr/profile"),
    ):
        assert is_rejected(response), response.content
    assert refresh(str(victim.login["refresh_token"])).json()["error"] == "invalid_grant"
    assert victim.methods() == ["totp", "backup_code"]


def test_password_alone_gives_no_token_after_the_first_factor(victim: Victim) -> None:
    victim.enroll_totp()
    response = victim.sign_in(victim.api)
    assert (response.status_code, response.json()["mfa_required"]) == (200, True)
    assert "access_token" not in response.json()
    assert TICKET not in response.headers


def test_own_session_of_one_factor_adds_no_second_one(victim: Victim) -> None:
    # The session that enrolled the first factor continues with password level only.
    victim.enroll_totp(token=victim.token)
    assert is_rejected(victim.begin_passkey(token=victim.token))
    assert is_rejected(victim.begin_totp(token=victim.token))
    assert victim.begin_passkey(token=victim.second_step()["access_token"]).status_code == 200
