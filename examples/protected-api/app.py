"""An API that accepts a tenant's access tokens. `python app.py` serves it; README.md says what it needs."""

import os
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse

from identity_sdk.fastapi import IdentityAuth, Principal

# --- configuration
app = FastAPI()
auth = IdentityAuth(os.environ["OIDC_ISSUER"], audience=os.environ["API_AUDIENCE"])


@app.get("/orders")
def orders(principal: Annotated[Principal, Depends(auth.require_permission("orders:read"))]) -> dict[str, str]:
    return {"orders_of": principal.id, "kind": principal.kind}


# --- end of configuration
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Orders</title><body style="font: 1.1rem/1.6 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<main><h1>An API for orders</h1><p>Paste an access token, or none, and call <code>GET /orders</code>.</p>
<form><label for="token">Access token</label><br><input id="token" type="password" autocomplete="off" style="width: 100%">
<p><button>Call</button></p></form><pre id="response" role="status" style="white-space: pre-wrap"></pre></main>
<script>
  document.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = document.getElementById("token").value.trim();
    const response = await fetch("/orders", {headers: token ? {Authorization: `Bearer ${token}`} : {}});
    document.getElementById("response").textContent = `${response.status} ${await response.text()}`;
  });
</script>"""


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    """A page to try the API; it is no part of it."""
    return PAGE


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8003")), log_level="warning")
