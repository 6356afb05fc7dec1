"""The REST API of the conformance suite, as its own scripts use it."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from tests.conformance.web import Server


@dataclass
class Suite:
    """A running conformance suite."""

    server: Server

    def version(self) -> dict[str, Any]:
        """Return version and commit of the suite."""
        return dict(self.server.call("GET", "api/server"))

    def create_plan(self, plan: str, variant: dict[str, str], configuration: dict[str, Any]) -> dict[str, Any]:
        """Create a test plan; return its id and the modules with their variants."""
        return dict(
            self.server.call("POST", "api/plan", configuration, planName=plan, variant=json.dumps(variant)),
        )

    def create_module(self, plan_id: str, module: dict[str, Any]) -> str:
        """Create an instance of a module of a plan; return its id."""
        query = {"test": module["testModule"], "plan": plan_id}
        if module.get("variant"):
            query["variant"] = json.dumps(module["variant"])
        return str(self.server.call("POST", "api/runner", **query)["id"])

    def start(self, module_id: str) -> None:
        """Start a module that does not start by itself."""
        self.server.call("POST", f"api/runner/{module_id}")

    def cancel(self, module_id: str) -> None:
        """End a module."""
        self.server.call("DELETE", f"api/runner/{module_id}")

    def state(self, module_id: str) -> dict[str, Any]:
        """Return `status`, and `result` once there is one."""
        return dict(self.server.call("GET", f"api/info/{module_id}"))

    def addresses(self, module_id: str) -> list[dict[str, str]]:
        """Return the addresses that a person shall open, each with `url` and `method`."""
        browser = self.server.call("GET", f"api/runner/{module_id}").get("browser") or {}
        return [dict(address) for address in browser.get("urlsWithMethod", [])]

    def mark_visited(self, module_id: str, url: str) -> None:
        """Tell the module that a person has opened the address."""
        self.server.call("POST", f"api/runner/browser/{module_id}/visit", url=url)

    def log(self, module_id: str) -> list[dict[str, Any]]:
        """Return the entries of the module's log."""
        return [dict(entry) for entry in self.server.call("GET", f"api/log/{module_id}")]

    def placeholders(self, module_id: str) -> list[dict[str, Any]]:
        """Return the entries of the log that wait for a screenshot."""
        return [entry for entry in self.log(module_id) if entry.get("upload") and not entry.get("img")]

    def upload(self, module_id: str, placeholder: str, png: bytes) -> None:
        """Upload the screenshot that a placeholder asks for."""
        image = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        self.server.call("POST", f"api/log/{module_id}/images/{placeholder}", image)
