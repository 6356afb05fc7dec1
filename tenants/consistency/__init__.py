"""Find and repair contradictions between databases, and problems of tenants' databases."""
