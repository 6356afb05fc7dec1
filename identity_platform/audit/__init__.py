"""The audit trail's kernel; `writer` writes it, `origin` knows who asks. Imports no app."""
