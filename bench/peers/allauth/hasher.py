"""The platform's argon2id parameters."""

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2(Argon2PasswordHasher):
    time_cost, memory_cost, parallelism = 2, 19 * 1024, 1
