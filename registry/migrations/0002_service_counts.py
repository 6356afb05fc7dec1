"""Triggers that keep how many services a tenant has of each type and status.

They run once a statement, so an import of many services pays once, and add up in one order, so that two of them never
wait for each other crosswise.
"""

from django.db import migrations

COUNT = """
CREATE FUNCTION registry_count_{deed}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO registry_servicecount AS c (tenant_id, type, status, services)
    SELECT tenant_id, coalesce(type, ''), status, sum(n) FROM ({changes}) changed
    GROUP BY GROUPING SETS ((tenant_id, type, status), (tenant_id, status))
    HAVING sum(n) <> 0
    ORDER BY 1, 2, 3
    ON CONFLICT (tenant_id, type, status) DO UPDATE SET services = c.services + EXCLUDED.services;
    {clean}
    RETURN NULL;
END
$$;
CREATE TRIGGER registry_count_{deed} AFTER {deed} ON registry_service
    REFERENCING {tables} FOR EACH STATEMENT EXECUTE FUNCTION registry_count_{deed}();
"""
MORE = "SELECT tenant_id, type, status, 1 AS n FROM after"
LESS = "SELECT tenant_id, type, status, -1 AS n FROM before"
CLEAN = """
    DELETE FROM registry_servicecount c USING (SELECT DISTINCT tenant_id, type, status FROM before) b
    WHERE c.tenant_id = b.tenant_id AND c.type IN (b.type, '') AND c.status = b.status AND c.services = 0;
"""
DROP = "DROP TRIGGER registry_count_{deed} ON registry_service; DROP FUNCTION registry_count_{deed}();"

TRIGGERS = {
    "insert": {"changes": MORE, "clean": "", "tables": "NEW TABLE AS after"},
    "update": {
        "changes": f"{LESS} UNION ALL {MORE}",
        "clean": CLEAN,
        "tables": "OLD TABLE AS before NEW TABLE AS after",
    },
    "delete": {"changes": LESS, "clean": CLEAN, "tables": "OLD TABLE AS before"},
}


class Migration(migrations.Migration):
    dependencies = [("registry", "0001_initial")]

    operations = [
        migrations.RunSQL(COUNT.format(deed=deed, **parts), DROP.format(deed=deed)) for deed, parts in TRIGGERS.items()
    ]
