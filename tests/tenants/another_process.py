"""Run management commands in processes of their own, and kill them after a given step.

Started once per release and forked for every command, because starting Django takes longer than the command.
"""

import contextlib
import io
import json
import os
import sys
from typing import Any


def serve(database: str) -> None:
    """Run each line of JSON on standard input: `command` (a list) and `kill_after` (a step, or none).

    With `path` in place of `command` send a GET request to the process itself: the code stands for the response's status.
    `database` and `prefix` are those of another installation.
    """
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = database
    for line in sys.stdin:
        asked = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _run(asked, writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"code": code, "said": said}), flush=True)


def _run(asked: dict[str, Any], writing: int) -> None:
    from django.core.management import CommandError, call_command

    from tenants import job_steps

    if asked.get("database"):
        from django.conf import settings
        from django.db import connection

        settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = asked["database"]
        settings.TENANT_DATABASE_PREFIX, settings.TENANT_WARM_POOL = asked["prefix"], 2
    if "path" in asked:
        from django.test import Client

        response = Client(raise_request_exception=False, HTTP_HOST="localhost").get(asked["path"])
        os.write(writing, response.content[:60_000])
        # More than an exit code can be.
        os._exit(response.status_code // 100 * 10 + response.status_code % 100)
    if asked["kill_after"]:
        job_steps.completed = lambda step: os._exit(9) if step == asked["kill_after"] else None
    code, said = 0, io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            call_command(*asked["command"], stdout=said)
    except CommandError as error:
        code = error.returncode
        said.write(str(error))
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as problem:
        code = 70
        said.write(repr(problem))
    os.write(writing, said.getvalue().encode()[:60_000])
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
