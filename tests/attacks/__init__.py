"""Attacks on users of every kind: registered and invited end users, directory users, tenant admins and operators.

Where each attack is tested:

| attack | tests |
|---|---|
| a caller at the victim's address adds a passkey after the first factor; an operator's window | `attacks/test_first_factor.py` |
| a password-only token or an older ticket changes factors | `attacks/test_first_factor.py`, `mfa/enrollment/test_state_changes.py` |
| an admin enrolls a passkey for a user and gets the user's tokens | `attacks/test_admins_for_users.py` |
| an operator without a factor over the API | `userflow/signin/test_factor_policy.py` |
| one stolen access token takes the account | `attacks/test_stolen_tokens.py` |
| sessions without end, or sessions that ignore a later policy | `userflow/sessions/test_session_limits.py`, `test_policy_races.py` |
| an attacker registers the victim's address first | `userflow/prehijacking/`, `userflow/endusers/test_yielding.py` |
| SMS to one number without end, or a tenant's SMS budget used up | `mfa/sms/test_budgets.py` |
| the refresh grace window leads a thief to the newest token | `userflow/sessions/test_refresh.py` |
| all password hashes with an old token | `userflow/transfer/test_hash_exports.py` |
| a weaker caller rotates a stronger client's secret | `userflow/signin/test_action_table.py`, `userflow/clients/test_clients.py` |
| a confidential client's sign-in without its secret | `userflow/signin/test_confidential_client.py` |
| a 403 that is not audited | `userflow/access/test_rejected_calls.py` |
| every operation and form below its level | `userflow/signin/test_action_table.py`, `console/test_assurance.py` |
| any sequence of steps after a stolen token, one permission, one scope, a client or an address | `properties/` |
| the first factor, proof tokens and policy changes in parallel | `mfa/enrollment/test_first_factor_races.py`, `mfa/stepup/test_proof_token_races.py`, `userflow/sessions/test_policy_races.py` |
"""  # noqa: E501
