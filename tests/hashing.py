"""Password hashes that cost next to nothing, for tests that are not about them."""

from userflow.credentials.passwords import Argon2Hasher


class CheapArgon2Hasher(Argon2Hasher):
    """argon2id with nearly the least parameters that it takes."""

    time_cost = 1
    memory_cost = 16
