"""System check of the implementation that hashes passwords."""

from django.core.checks import CheckMessage, Info, register

from identity_platform.crypto import argon2id


@register(deploy=True)
def passwords_are_hashed_by_a_build(**_: object) -> list[CheckMessage]:
    """Report a machine without a build for its processor, where passwords are hashed at half the speed.

    Not a warning: an installed package has no builds, and `--fail-level WARNING` of its checks must succeed.
    """
    if argon2id.builds() or not argon2id.extensions():
        return []
    message = (
        f"Passwords are hashed without {' and '.join(argon2id.extensions())}, at half the speed of this processor."
    )
    hint = (
        "In a checkout install gcc and the headers of Python, remove .venv/.installed and start again. Nothing is insecure "
        "without a build."
    )
    return [Info(message, hint=hint, id="userflow.I001")]
