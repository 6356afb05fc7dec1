"""The platform's room: who works for it, its keys, its database servers, its audit trail, and tenants' clients."""
