"""Mutation runs: faults of one line in the critical rooms, and whether the tests notice them (`tests.mutation.run`)."""
