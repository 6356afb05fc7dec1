"""Targets 5 and 8: a login against the bare hash, and the effect of logins on other callers' reads."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass

from bench import servers, world
from bench.measures.reads import cost
from bench.rounds import Subject, WrongAnswers, answers_of, load, ratio
from bench.run import Row, Run
from bench.servers import Server

PEOPLE = 200
# Reads come at fixed times, so that their number does not fall while logins hold the cores.
READS_PER_SECOND = 100.0
READERS = 8
SIGNERS = 8
# The logins begin before the reads and end after them.
BEFORE_AND_AFTER_SECONDS = 0.5


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


@dataclass(frozen=True)
class Latency:
    """The counts of a round: reads alone, reads beside logins; logins with status 200 and 503 within `seconds`."""

    alone: dict[str, float]
    beside: dict[str, float]
    logins: int
    refused: int
    seconds: float


def reads_and_logins(
    platform: Server, tenant: world.BenchTenant, *, logins_per_second: float | None = None
) -> tuple[Subject, Subject]:
    """Return reads at a steady rate, and logins as fast as the callers get responses or at a steady rate."""
    reads = [world.get(f"/uflow/user/enduser/{tenant.tenant_id}/{user}", tenant.token) for user in tenant.users]
    return (
        Subject("reads", platform, reads, connections=READERS, per_second=READS_PER_SECOND),
        Subject("logins", platform, _logins(tenant), connections=SIGNERS, per_second=logins_per_second),
    )


def latency(reading: Subject, signing: Subject, seconds: float) -> Latency:
    """Read alone, then beside the logins."""
    alone = _all_answered(answers_of(load(reading, seconds)))
    logins = load(signing, seconds + BEFORE_AND_AFTER_SECONDS)
    beside = _all_answered(answers_of(load(reading, seconds)))
    counted = answers_of(logins)
    statuses = counted["statuses"]
    return Latency(alone, beside, statuses.get("200", 0), statuses.get("503", 0), counted["seconds"])


def measure_latency(run: Run) -> list[Row]:
    """Target 8: p99 of reads at a steady rate, alone and while logins keep every core busy."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    # The p99 of a hundred reads a second is the slowest one of a second.
    seconds = 2 * run.seconds
    taken = []
    with servers.platform(run.home) as platform:
        reading, signing = reads_and_logins(platform, tenant)
        for number in range(run.rounds):
            run.say(f"round {number + 1} of {run.rounds}: reads alone, then beside logins")
            taken.append(latency(reading, signing, seconds))
    signed_in, refused = sum(one.logins for one in taken), sum(one.refused for one in taken)
    run.raw["latency"] = {
        "alone": [one.alone for one in taken],
        "beside": [one.beside for one in taken],
        "logins": signed_in,
        "logins_refused": refused,
    }
    found = statistics.median(one.beside["p99_ms"] / one.alone["p99_ms"] for one in taken)
    return [
        Row(
            "8",
            f"p99 of {READS_PER_SECOND:.0f} reads/s while {SIGNERS} callers log in",
            ours=f"{statistics.median(one.beside['p99_ms'] for one in taken):.1f} ms",
            against=f"no logins: {statistics.median(one.alone['p99_ms'] for one in taken):.1f} ms",
            ratio=found,
            wanted="≤ 5",
            met=found <= 5,
            beside=f"{signed_in / run.rounds / (seconds + BEFORE_AND_AFTER_SECONDS):.0f} logins/s, {refused} of"
            f" {signed_in + refused} refused with 503",
        )
    ]


def _all_answered(counted: dict[str, object]) -> dict[str, float]:
    if counted["statuses"] and set(counted["statuses"]) != {"200"}:  # type: ignore[call-overload]
        raise WrongAnswers(f"Reads were answered {counted['statuses']}.")
    return {name: value for name, value in counted.items() if isinstance(value, float)}
