"""Targets 5 and 8: a login against the bare hash, and the effect of logins on other callers' reads."""

from __future__ import annotations

import json
import statistics

from bench import servers, world
from bench.measures.reads import cost
from bench.rounds import Subject, WrongAnswers, answers_of, load, ratio
from bench.run import Row, Run

PEOPLE = 200
# Reads come at fixed times, so that their number does not fall while logins hold the cores.
READS_PER_SECOND = 100.0
READERS = 8
SIGNERS = 8


def _logins(tenant: world.BenchTenant) -> list[bytes]:
    return [
        world.post(
            "/uflow/auth/enduser/login",
            json.dumps({"client_id": str(tenant.client_id), "email": email, "password": world.PASSWORD}).encode(),
        )
        for email in tenant.emails[:PEOPLE]
    ]


def measure_login(run: Run) -> list[Row]:
    """Target 5: an end user's login with session, refresh token, attempt counter, window and audit written."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    hashing = {"PEER_HASH": world.password_hash(), "PEER_PASSWORD": world.PASSWORD}
    with (
        servers.platform(run.home) as platform,
        servers.peer(run.home, "hash_only", **hashing) as stock,
        servers.peer(run.home, "hash_only", **hashing, PEER_LIBSODIUM="1") as libsodium,
    ):
        subjects = [
            Subject("platform", platform, _logins(tenant)),
            Subject("hash", stock, [world.get("/")]),
            Subject("libsodium", libsodium, [world.get("/")]),
        ]
        taken = run.compare("login", subjects)
    found = ratio(taken, "platform", "hash")
    return [
        Row(
            "5",
            "login, session and audit written",
            ours=cost(taken["platform"]),
            against=f"the bare hash: {cost(taken['hash'])}",
            ratio=found,
            wanted="≥ 0.85",
            met=found >= 0.85,
        ),
        Row(
            "–",
            "the same",
            ours=cost(taken["platform"]),
            against=f"the bare hash by libsodium: {cost(taken['libsodium'])}",
            ratio=ratio(taken, "platform", "libsodium"),
            wanted="no target",
            met=True,
        ),
    ]


def measure_latency(run: Run) -> list[Row]:
    """Target 8: p99 of reads at a steady rate, alone and while logins keep every core busy."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    reads = [world.get(f"/uflow/user/enduser/{tenant.tenant_id}/{user}", tenant.token) for user in tenant.users]
    alone, beside, signed_in, refused = [], [], 0, 0
    with servers.platform(run.home) as platform:
        reading = Subject("reads", platform, reads, connections=READERS, per_second=READS_PER_SECOND)
        signing = Subject("logins", platform, _logins(tenant), connections=SIGNERS)
        for number in range(run.rounds):
            run.say(f"round {number + 1} of {run.rounds}: reads alone")
            alone.append(_all_answered(answers_of(load(reading, run.seconds))))
            run.say(f"round {number + 1} of {run.rounds}: reads beside logins")
            logins = load(signing, run.seconds + 0.5)
            beside.append(_all_answered(answers_of(load(reading, run.seconds))))
            statuses = answers_of(logins)["statuses"]
            signed_in += statuses.get("200", 0)
            refused += statuses.get("503", 0)
    run.raw["latency"] = {"alone": alone, "beside": beside, "logins": signed_in, "logins_refused": refused}
    found = statistics.median(b["p99_ms"] / a["p99_ms"] for a, b in zip(alone, beside, strict=True))
    middles = {name: statistics.median(one["p99_ms"] for one in some) for name, some in (("a", alone), ("b", beside))}
    return [
        Row(
            "8",
            f"p99 of {READS_PER_SECOND:.0f} reads/s while {SIGNERS} callers log in",
            ours=f"{middles['b']:.1f} ms",
            against=f"no logins: {middles['a']:.1f} ms",
            ratio=found,
            wanted="≤ 5",
            met=found <= 5,
            beside=f"{signed_in / run.rounds / (run.seconds + 0.5):.0f} logins/s, {refused} of {signed_in + refused}"
            " refused with 503",
        )
    ]


def _all_answered(counted: dict[str, object]) -> dict[str, float]:
    if counted["statuses"] and set(counted["statuses"]) != {"200"}:  # type: ignore[call-overload]
        raise WrongAnswers(f"Reads were answered {counted['statuses']}.")
    return {name: value for name, value in counted.items() if isinstance(value, float)}
