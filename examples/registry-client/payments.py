"""A stand-in for an external payment service: it accepts two keys at a time, so that they can be rotated."""

import os
import secrets
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPBearer

app = FastAPI()
# Key by the id under which it can be revoked.
keys = {"key-1": os.environ["FIRST_KEY"]}


def caller(bearer: Annotated[object, Depends(HTTPBearer())]) -> str:
    """Return the id of the key that the request has. Raises HTTPException (401)."""
    sent = str(getattr(bearer, "credentials", ""))
    for name, key in keys.items():
        if secrets.compare_digest(key.encode(), sent.encode()):
            return name
    raise HTTPException(401, "The key is unknown or was revoked.")


Caller = Annotated[str, Depends(caller)]


@app.post("/charges")
def charge(key: Caller) -> dict[str, str]:
    return {"charge": f"ch-{secrets.token_hex(3)}", "key": key}


@app.post("/keys")
def add_key(key: Caller) -> dict[str, str]:
    if len(keys) > 1:
        raise HTTPException(409, "Revoke a key first.")
    name = f"key-{int(key.removeprefix('key-')) + 1}"
    keys[name] = f"pay_{secrets.token_urlsafe(24)}"
    return {"id": name, "secret": keys[name], "replaces": key}


@app.delete("/keys/{name}")
def revoke_key(key: Caller, name: str) -> dict[str, str]:
    if name == key or keys.pop(name, None) is None:
        raise HTTPException(409, "A key revokes another key that exists.")
    return {"revoked": name}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning", access_log=False)
