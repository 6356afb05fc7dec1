"""`bin/conformance`: runs plans of the conformance suite against a platform and writes the results."""

import argparse
import os
import secrets
import ssl
import sys
import tempfile
import time
from pathlib import Path

from tests.browsers import start_chromium
from tests.conformance import results
from tests.conformance.hosted_pages import HostedPages
from tests.conformance.modules import ModuleRun, Outcome
from tests.conformance.plans import PLANS, Plan
from tests.conformance.suite import Suite
from tests.conformance.tenants import Tenant, create_tenant
from tests.conformance.web import Server

FINE = frozenset({"PASSED", "SKIPPED", "REVIEW", "WARNING"})


def main(words: list[str]) -> int:
    """Run the plans; return 0 if no module failed."""
    arguments = parser().parse_args(words)
    trust = ssl.create_default_context(cafile=arguments.ca)
    suite = Suite(Server(arguments.suite, trust, os.environ.get("CONFORMANCE_TOKEN", "")))
    platform = Server(arguments.platform, trust)
    sign_in(platform)
    tenant = create_tenant(platform)
    version = suite.version()
    is_fine = True
    with tempfile.TemporaryDirectory() as profile:
        # A certificate of one's own is trusted by Python alone.
        more = ["--ignore-certificate-errors"] if arguments.ca else []
        browser = start_chromium(Path(profile), *more)
        try:
            pages = HostedPages(browser, arguments.suite.rstrip("/") + "/")
            for key in arguments.plans or PLANS:
                plan = PLANS[key]
                # Registering clients needs a recent authentication, and a plan can take longer than that lasts.
                sign_in(platform)
                at = create_tenant(platform) if plan.on_new_tenant else tenant
                outcomes = run_plan(suite, pages, at, plan, arguments.modules)
                is_fine = is_fine and all(outcome.result in FINE for outcome in outcomes)
                if arguments.write:
                    results.store(key, plan, outcomes, version)
                    results.write_page()
        finally:
            browser.quit()
    return 0 if is_fine else 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser("bin/conformance", description=__doc__)
    parser.add_argument("--suite", required=True, help="address of a running suite, such as https://localhost:8443")
    parser.add_argument("--platform", required=True, help="BASE_URL of a running platform; the suite must reach it")
    parser.add_argument("--ca", help="file with the certificates of both, if no public authority has signed them")
    parser.add_argument("--modules", nargs="*", default=[], help="only these modules of the plans")
    parser.add_argument("--write", action="store_true", help="write the results and docs/conformance.md")
    parser.add_argument("plans", nargs="*", choices=[[], *PLANS], help="default: all")
    return parser


def sign_in(platform: Server) -> None:
    """Get the token of the operator in OPERATOR_USERNAME and OPERATOR_PASSWORD."""
    operator = {"username": os.environ["OPERATOR_USERNAME"], "password": os.environ["OPERATOR_PASSWORD"]}
    platform.token = platform.call("POST", "uflow/admin/auth/login", operator)["access_token"]


def run_plan(suite: Suite, pages: HostedPages, tenant: Tenant, plan: Plan, modules: list[str]) -> list[Outcome]:
    """Create a plan with clients of its own and run its modules, or those of them in `modules`."""
    alias = f"identity-{secrets.token_hex(4)}"
    configuration = plan.configure(tenant, f"{suite.server.url.rstrip('/')}/test/a/{alias}")
    made = suite.create_plan(plan.name, plan.variant, {**configuration, "alias": alias, "description": plan.title})
    print(f"{plan.title}: {suite.server.url.rstrip('/')}/plan-detail.html?plan={made['id']}", flush=True)
    outcomes = []
    for module in made["modules"]:
        if modules and module["testModule"] not in modules:
            continue
        outcome = ModuleRun(suite, pages, tenant, module, made["id"]).run()
        print(
            f"{outcome.result:12} {outcome.seconds:6} s  {outcome.module}", *outcome.reasons, sep="\n    ", flush=True
        )
        outcomes.append(outcome)
    return outcomes


if __name__ == "__main__":
    began = time.monotonic()
    status = main(sys.argv[1:])
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(status)
