"""A process that leases connections, forks, and goes on in both processes; prints what each saw as a line of JSON."""

import json
import os
import sys
from uuid import UUID


def main(tenant_id: UUID) -> None:
    import django

    django.setup()
    from django.db import connections

    from tenants.backend.base import LEASES
    from tenants.entering.context import in_tenant
    from tenants.models import ConnectionLease

    def use() -> dict[str, object]:
        with in_tenant(tenant_id), connections["tenant"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (backend,) = cursor.fetchone()
        leases = ConnectionLease.objects.filter(pid=os.getpid()).values_list("process", "connections")
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "SELECT extract(epoch FROM expires_at - clock_timestamp())::float FROM tenants_connectionlease WHERE pid = %s",
                [os.getpid()],
            )
            left = [row[0] for row in cursor.fetchall()]
        held = [[str(process), number] for process, number in leases]
        return {"pid": os.getpid(), "backend": backend, "leases": held, "left": left}

    LEASES.start(global_connections=2, command="forking")
    seen = [use()]
    reading, writing = os.pipe()
    connections.close_all()
    if os.fork() == 0:
        os.write(writing, json.dumps(use()).encode())
        LEASES.end()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        seen.append(json.loads(pipe.read()))
    os.wait()
    seen.append(use())
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(UUID(sys.argv[1]))
