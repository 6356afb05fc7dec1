"""The package of sdk/typescript installs into an empty folder, as its README says."""

import subprocess
from pathlib import Path

import pytest

from tests.openid.node_client import node_programs
from tests.sdk.readme import SDK
from tests.sdk.workspace import Workspace, node

IMPORT = """
import { IdentityClient } from "identity-platform-sdk";
import { ClientCredentials } from "identity-platform-sdk/server";
console.log(IdentityClient.name, ClientCredentials.name);
"""


@pytest.mark.needs("node")
def test_packed_file_installs_into_an_empty_folder(workspace: Workspace, tmp_path: Path) -> None:
    (packed,) = workspace.folder.glob("*.tgz")
    assert f"\nnpm install ./{packed.name}\n" in (SDK / "typescript/README.md").read_text()
    program, npm = node_programs()
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    # With the whole environment: it says how to reach a registry.
    subprocess.run([program, npm, "install", *options, packed], cwd=tmp_path, check=True, timeout=120)
    assert node("--input-type=module", "--eval", IMPORT, cwd=tmp_path) == "IdentityClient ClientCredentials\n"
