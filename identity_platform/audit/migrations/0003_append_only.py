"""The trail is append-only for everybody who speaks SQL to it, also for a superuser who does not switch triggers off.

The one door is the retention. An event may be deleted when an anchor of the chain covers it and it is at least thirty
days old; a link when an anchor has let it go. No session setting opens the door, because whoever can inject SQL can set
those as well: an anchor stays behind as a row of the chain, and one that the platform has not made has a wrong MAC, so
`verify_audit` finds it. ENABLE ALWAYS keeps the triggers on under session_replication_role = replica.

The functions pin their search path, or a temporary table called like the table of links would open the door.
"""

from django.db import migrations

_GUARD = """
CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'The audit trail is append-only: % on % is refused.', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION audit_keep_event() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF OLD.at < now() - interval '30 days' AND EXISTS (
    SELECT 1 FROM public.{seals} s WHERE s.kind = 'anchor' AND s.to_id >= OLD.id
  ) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'The audit trail is append-only: event % is not released by an anchor.', OLD.id
    USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION audit_keep_link() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM public.{seals} s WHERE s.kind = 'anchor' AND s.number > OLD.number AND s.purged_number >= OLD.number
  ) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'The audit trail is append-only: link % is not released by an anchor.', OLD.number
    USING ERRCODE = 'insufficient_privilege';
END $$;
"""
_TRIGGERS = """
CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER kept BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {keep}();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE {table} ENABLE ALWAYS TRIGGER kept;
"""


def _install(events: str, seals: str) -> str:
    return (
        _GUARD.format(seals=seals)
        + _TRIGGERS.format(table=events, keep="audit_keep_event")
        + _TRIGGERS.format(table=seals, keep="audit_keep_link")
    )


def _remove(events: str, seals: str) -> str:
    drops = [f"DROP TRIGGER {name} ON {table};" for table in (events, seals) for name in ("append_only", "kept")]
    return " ".join([*drops, "DROP FUNCTION audit_refuse(), audit_keep_event(), audit_keep_link();"])


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_hash_chain")]
    operations = [
        migrations.RunSQL(
            _install("audit_tenantevent", "audit_tenantseal"),
            _remove("audit_tenantevent", "audit_tenantseal"),
            hints={"tenant": True},
        ),
        migrations.RunSQL(
            _install("audit_platformevent", "audit_platformseal"),
            _remove("audit_platformevent", "audit_platformseal"),
            hints={"tenant": False},
        ),
    ]
