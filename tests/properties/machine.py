"""The state machine that Hypothesis drives: the attacker's steps, the others' days, and the properties after each."""

import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from django.conf import settings as platform
from django.core import mail as django_mail
from django.core.management import CommandError
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from identity_platform.api.errors import ApiError
from tests.openid.pages.visitor import Visitor
from tests.properties import days, properties
from tests.properties.calls import ANY, Draw, Operation, Request, draw_request, operations
from tests.properties.forms import Form, forms_of, links_of, page_paths
from tests.properties.knowledge import ATTACKER_HOST, claims_of, tokens_in
from tests.properties.scene import TICKET, Scene, build_scene, send
from tests.properties.starts import Attacker, Credential, new_attacker
from tests.properties.statistics import STATISTICS
from tests.tenants.conftest import throw_away
from tests.world import new_client, unique_ip

# What a step chooses is drawn from one number: Hypothesis has room for a few thousand, and a step makes dozens of choices.
CHOICES: Final = st.integers(0, 2**48)
# Of the operator, in an example.
MOST_COMMANDS: Final = 4
OLD_BACKUP: Final = "old backup"
CHOOSING: Final = "choose_target"
# A burst: more than each documented number of free tries.
MOST_REPEATS: Final = 25


def drawing(seed: str) -> Draw:
    """Return a function that draws numbers below a bound, the same ones for the same seed."""
    return random.Random(seed).randrange


# The name of a rule and its numbers.
Step = tuple[str, str]


class Failure(AssertionError):
    """A property does not hold after these steps."""

    def __init__(self, message: str, log: list[str], played: list[Step]) -> None:
        super().__init__(message)
        self.message, self.log, self.played = message, log, played

    def __str__(self) -> str:
        return "\n".join([self.message, *self.log])


@dataclass
class Example:
    """One example: the scene, the attacker, what happened, and what to compare the next step with."""

    scene: Scene
    attacker: Attacker
    log: list[str] = field(default_factory=list)
    last: tuple[Request, Credential] | None = None
    # Whether the last step was one of the attacker in the session of its victim.
    as_victim: bool = False
    before: properties.Credentials = field(default_factory=dict)
    # The steps so far, so that a part of them can be played again.
    played: list[Step] = field(default_factory=list)
    failed: bool = False
    commands: int = 0

    def note(self, line: str) -> None:
        self.log.append(f"{len(self.log) + 1:3}. {line}")


class Explorer(RuleBasedStateMachine):
    """An attacker with one start among honest people."""

    start: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        django_mail.outbox.clear()
        self.folder = tempfile.TemporaryDirectory(prefix="explorer-")
        scene = build_scene(Path(self.folder.name))
        self.example = Example(scene, new_attacker(scene, self.start))
        scene.read_mails()
        if self.start == OLD_BACKUP:
            days.back_up(scene, lambda bound: 0)
        self.example.before = properties.credentials_of(scene)
        STATISTICS.examples += not STATISTICS.paused

    def teardown(self) -> None:
        try:
            if self.example.failed:
                return
            self._check(lambda: properties.victims_can_sign_in(self.example.attacker))
            self._check(lambda: properties.nothing_revoked_works(self.example.scene, also_counted=True))
        finally:
            self.folder.cleanup()
            # Two databases for each example would fill the disk of a long run.
            for tenant in (self.example.scene.tenant, self.example.scene.other_tenant):
                with suppress(Exception):
                    throw_away(tenant.row)

    def _begin(self, name: str, choices: int | str) -> Draw:
        # The same number at another step chooses something else; a step that is played again is as it was.
        chosen = choices if isinstance(choices, str) else f"{choices} {len(self.example.played)}"
        self.example.played.append((name, chosen))
        return drawing(chosen)

    @initialize(choices=CHOICES)
    def choose_target(self, choices: int | str) -> None:
        """Let the attacker choose a victim, whose names most of its requests have together."""
        draw, example = self._begin(CHOOSING, choices), self.example
        targets = (*example.scene.people.values(), None, None)
        target = targets[draw(len(targets))]
        example.attacker.aim_at(target)
        example.note(f"attacker aims at {target.name if target else 'a newcomer'}")

    @rule(choices=CHOICES)
    def act(self, choices: int | str) -> None:
        """Let the attacker do something, mostly what its start is for, or a user, an admin or the operator."""
        draw = self._begin("act", choices)
        turns = (
            *(self._attacker_changes,) * 9,
            *(self._attacker_changes_account,) * 6,
            *(self._attacker_goes_on,) * 3,
            *(self._attacker_sends_form,) * 2,
            self._attacker_calls_any,
            self._attacker_repeats,
            *(self._user_acts,) * 5,
            *(self._user_opens_link,) * 4,
            self._an_honest_user_revokes,
            self._operator_acts,
            # A start about a backup is about what the others do.
            *((self._an_honest_user_revokes, self._operator_acts) * 4 if self.start == OLD_BACKUP else ()),
        )
        turns[draw(len(turns))](draw)

    # --- the attacker ------------------------------------------------------------------------------------------------

    def _attacker_changes(self, draw: Draw) -> None:
        """Call an operation that changes something: mostly one that a permission of the start is for."""
        changing = [each for each in self._open() if each.changes]
        named = [each for each in changing if each.permissions & self.example.attacker.authority]
        self._attacker_calls(draw, named if named and draw(3) else changing)

    def _attacker_changes_account(self, draw: Draw) -> None:
        """Call an operation that needs an assurance and no permission: it changes the caller's own account."""
        changing = [each for each in self._open() if each.changes]
        own = [each for each in changing if each.is_sensitive and not each.permissions]
        self._attacker_calls(draw, own or changing)

    def _attacker_goes_on(self, draw: Draw) -> None:
        """Call an operation that takes what a response has just shown, if there is such a thing."""
        knowledge = self.example.attacker.knowledge
        fitting = [each for each in self._open() if each.changes and any(map(knowledge.has_news, each.fields))]
        self._attacker_calls(draw, fitting or [each for each in self._open() if each.changes])

    def _attacker_calls_any(self, draw: Draw) -> None:
        """Call any operation, reading ones too."""
        self._attacker_calls(draw, list(operations()))

    def _attacker_repeats(self, draw: Draw) -> None:
        """Send the last request again, once or in a burst."""
        if self.example.last is None:
            return
        request, credential = self.example.last
        times = (1, 1, 2, MOST_REPEATS)[draw(4)]
        if times > 1:
            self.example.note(f"attacker sends it {times} times:")
        for number in range(times):
            self._send(request, credential, {}, silent=number > 0)
        self._check(lambda: properties.victims_can_sign_in(self.example.attacker))

    def _open(self) -> list[Operation]:
        """Return the operations that the start may open, as the document describes them."""
        attacker = self.example.attacker
        has_token = any("Bearer" in str(each.headers.values()) for each in attacker.credentials)
        return [
            each
            for each in operations()
            if (each.permissions & attacker.authority or not each.permissions)
            and (has_token or each.takes_anonymous or each.takes_client)
        ]

    def _attacker_calls(self, draw: Draw, candidates: list[Operation]) -> None:
        attacker = self.example.attacker
        # The start's credential most of the time.
        credential = attacker.credentials[max(0, draw(len(attacker.credentials) + 2) - 2)]
        operation = candidates[draw(840) % len(candidates)]
        request = draw_request(operation, draw, attacker.knowledge)
        tickets = attacker.knowledge.values.get("enrollment_ticket", [])
        headers = {TICKET: tickets[draw(ANY) % len(tickets)]} if tickets and draw(3) == 2 else {}
        self.example.last = request, credential
        self._send(request, credential, headers)

    def _send(self, request: Request, credential: Credential, headers: dict[str, str], *, silent: bool = False) -> None:
        example, attacker = self.example, self.example.attacker
        began = time.perf_counter()
        response = send(
            request.operation.method,
            request.path,
            request.body if request.operation.media_type == "application/json" else None,
            raw=request.raw,
            # Another one each time: limits of one address would end the exploration, and attackers have many.
            address=unique_ip(),
            headers={**credential.headers, **headers},
            query=request.query,
        )
        sent = json.dumps(request.body, default=str) if request.body else ""
        query = f" ?{'&'.join(f'{name}={value}' for name, value in request.query.items())}" if request.query else ""
        if not silent:
            example.note(
                f"attacker ({credential.label}{', with a ticket' if headers else ''}): {request.operation.method.upper()} "
                f"{request.path}{query} {_shortened(sent)} -> {response.status_code} {_shortened(_text(response), 160)}"
            )
        STATISTICS.called(request.operation, response, time.perf_counter() - began)
        if response.status_code == 401 and credential is attacker.start and attacker.renew is not None:
            attacker.renew()  # its own account or client signs in again
        self._attacker_sees(response, request.path, as_victim=self._is_of_victim(credential))

    def _is_of_victim(self, credential: Credential) -> bool:
        """Return whether a request with this credential is made in the session of the victim."""
        victim = self.example.attacker.victim
        token = credential.headers.get("Authorization", "").removeprefix("Bearer ")
        return victim is not None and token.startswith("eyJ") and claims_of(token).get("sub") == str(victim.id)

    def _attacker_sends_form(self, draw: Draw) -> None:
        """Open a hosted page, or follow a link of the last one, and send one of its forms."""
        example, attacker = self.example, self.example.attacker
        root = f"/t/{example.scene.tenant.slug}"
        if attacker.browser is None:
            attacker.browser = Visitor(
                example.scene.tenant, client=new_client(raise_request_exception=False), address=attacker.address
            )
        opened, links = attacker.browser, links_of(attacker.browser.page, root)
        if draw(2) or opened.page is None or not forms_of(opened.page):
            if links and draw(2):
                path = links[draw(ANY) % len(links)]
            else:
                paths = page_paths()
                path = f"{root}/{paths[draw(ANY) % len(paths)]}"
                if "{factor_id}" in path:
                    ids = attacker.knowledge.for_field("factor_id")
                    path = path.replace("{factor_id}", ids[0] if ids else "0" * 8 + "-0000" * 3 + "-" + "0" * 12)
            page = self._browse(lambda: opened.opens(path))
            example.note(f"attacker's browser: GET {path} -> {page.status_code} {opened.at}")
            self._attacker_sees(page, path, as_victim=attacker.victim is not None)
        forms = forms_of(opened.page)
        if forms:
            self._fill_in(forms[draw(ANY) % len(forms)], draw)

    def _browse(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except AssertionError:  # redirects without end are judged by the tests of the pages
            assert self.example.attacker.browser is not None
            return self.example.attacker.browser.page

    def _fill_in(self, form: Form, draw: Draw) -> None:
        example, attacker = self.example, self.example.attacker
        opened = attacker.browser
        assert opened is not None
        fields = {}
        for name, value in form.fields.items():
            known = attacker.knowledge.for_field(name)
            if name in form.hidden or not known:
                fields[name] = value
            elif draw(4) < 3:
                fields[name] = str(known[min(draw(ANY) % len(known), draw(ANY) % len(known))])
        if form.buttons:
            name, value = form.buttons[draw(ANY) % len(form.buttons)]
            fields[name] = value
        at = opened.at
        page = self._browse(
            lambda: opened.sends(**{name: value for name, value in fields.items() if name != "form_token"})
        )
        shown = {name: value for name, value in fields.items() if name not in form.hidden}
        example.note(f"attacker's browser: POST {at} {_shortened(json.dumps(shown))} -> {page.status_code} {opened.at}")
        STATISTICS.form(at)
        self._attacker_sees(page, "", as_victim=attacker.victim is not None)

    def _attacker_sees(self, response: Any, path: str, *, as_victim: bool) -> None:
        """Learn from a response, and check what it contains and what it has changed."""
        attacker = self.example.attacker
        text = response.content.decode(errors="replace") + response.headers.get("Location", "")
        body: Any = None
        if "json" in response.headers.get("Content-Type", ""):
            body = response.json()
            if response.status_code < 300:
                attacker.knowledge.read(body, path)
        elif response.status_code == 200:
            attacker.knowledge.read_page(text)
        if ticket := response.headers.get(TICKET):
            attacker.knowledge.learn("enrollment_ticket", ticket, news=True)
        tokens = tokens_in(text) if response.status_code < 300 else []
        self._check(lambda: properties.tokens_stay_within_the_start(attacker, tokens))
        self._check(lambda: properties.sessions_prove_nothing(attacker, body, as_victim=as_victim))
        self._check(lambda: properties.secrets_stay_with_their_holders(attacker, text))
        if isinstance(body, dict) and isinstance(body.get("access_token"), str) and response.status_code < 300:
            attacker.gain(Credential.bearer("a token that the attacker has gained", body["access_token"]))
        self._after_step(as_victim=as_victim, is_attack=True)

    # --- the others --------------------------------------------------------------------------------------------------

    def _user_acts(self, draw: Draw) -> None:
        """Let a user do one of the things that users do."""
        self._others_act(days.USERS, draw)

    def _an_honest_user_revokes(self, draw: Draw) -> None:
        """Let a user, the tenant's admin or the operator end something."""
        # Often it would end what the attacker has started with, after which nothing is left to explore.
        if self.start == OLD_BACKUP or not draw(3):
            self._others_act(days.REVOCATIONS, draw)

    def _operator_acts(self, draw: Draw) -> None:
        """Let the operator run a command, for example restore a backup."""
        # They take a second; most examples have none.
        if self.example.commands < MOST_COMMANDS and (self.start == OLD_BACKUP or not draw(3)):
            self.example.commands += 1
            self._others_act(days.MAINTENANCE, draw)

    def _user_opens_link(self, draw: Draw) -> None:
        """Let a signed-in user open a link to the authorization endpoint that the attacker has made."""
        example = self.example
        people = [each for each in example.scene.people.values() if each.tenant is example.scene.tenant]
        people = [each for each in people if not each.is_admin and each.active and not each.pending]
        if not people:
            return
        person = people[draw(ANY) % len(people)]
        knowledge = example.attacker.knowledge
        clients, addresses = knowledge.for_field("client_id"), knowledge.for_field("redirect_uri")
        client_id = clients[draw(ANY) % len(clients)]
        redirect_uri = addresses[draw(ANY) % len(addresses)]
        try:
            opened = person.browser or person.open_browser()
        except (AssertionError, ApiError):
            if not example.attacker.authority:
                raise
            return  # the attacker's start commands this user or the tenant
        page = opened.opens(example.scene.authorize(client_id, redirect_uri))
        target = page.headers.get("Location", "")
        example.note(
            f"{person.name}'s browser: GET authorize?client_id={client_id}&redirect_uri={redirect_uri} -> "
            f"{page.status_code} {_shortened(target) or opened.at}"
        )
        self._check(lambda: properties.codes_go_to_allowed_applications(example.attacker, person, client_id, target))
        self._after_step(as_victim=False, is_attack=False)

    def _others_act(self, steps: tuple[days.Step, ...], draw: Draw) -> None:
        if self.example.attacker.decides_for_tenants() and steps is days.MAINTENANCE:
            return  # a tenant that the attacker may suspend or delete
        number = draw(840)
        try:
            # The first from there that is possible now.
            turns = (steps[(number + turn) % len(steps)] for turn in range(len(steps)))
            said = next((said for step in turns if (said := step(self.example.scene, draw))), "")
        except (AssertionError, CommandError, ApiError, KeyError, ValueError) as problem:
            # An attacker whose start commands others may have changed or closed what this step needs.
            if not self.example.attacker.authority:
                raise
            said = f"in vain: {type(problem).__name__}"
        if said:
            self.example.note(said)
        self._after_step(as_victim=False, is_attack=False)

    # --- after each step ---------------------------------------------------------------------------------------------

    def _after_step(self, *, as_victim: bool, is_attack: bool) -> None:
        example, attacker, scene = self.example, self.example.attacker, self.example.scene
        STATISTICS.steps += not STATISTICS.paused
        mails = scene.read_mails()
        for mailed in mails:
            if mailed.to.endswith(ATTACKER_HOST):
                attacker.knowledge.learn("token", *mailed.tokens, news=bool(mailed.tokens))
                attacker.knowledge.learn("code", *mailed.codes, news=bool(mailed.codes))
        self._check(lambda: properties.mails_lead_home(attacker, mails))
        after = properties.credentials_of(scene)
        if is_attack:
            before = example.before
            self._check(
                lambda: properties.only_the_user_changes_credentials(attacker, before, after, as_victim=as_victim)
            )
        example.before = after
        has_come_back, scene.has_come_back = scene.has_come_back, False
        if has_come_back:
            self._check(lambda: properties.passwords_of_others_do_not_work(scene))
        self._check(lambda: properties.nothing_revoked_works(scene, also_counted=has_come_back))

    def _check(self, require: Callable[[], None]) -> None:
        try:
            require()
        except properties.Violation as violation:
            if any(part in str(violation) for part in STATISTICS.ignored):
                return
            STATISTICS.violated(str(violation))
            self.example.failed = True
            message = f"{violation} (start: {self.start})"
            raise Failure(message, list(self.example.log), list(self.example.played)) from None


def explorer_of(name: str) -> type[Explorer]:
    """Return the machine of one start."""
    return type("Explorer", (Explorer,), {"start": name})


def _text(response: Any) -> str:
    if "json" in response.headers.get("Content-Type", ""):
        return str(response.content.decode(errors="replace"))
    return str(response.headers.get("Location", ""))


def _shortened(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


assert urlsplit(platform.BASE_URL).hostname != ATTACKER_HOST
