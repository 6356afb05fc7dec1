"""Languages of hosted pages and mails, and the texts that a tenant can write itself."""

from typing import Final

# English, and those of the catalogues. Not settings.LANGUAGES, which are those of the console: an app's catalogues add none.
LANGUAGES: Final = ("en", "de", "fr", "es")
HEADING: Final = "signin_heading"
INTRO: Final = "signin_intro"
FOOTER: Final = "mail_footer"
# The longest texts, in characters.
LONGEST: Final = {HEADING: 80, INTRO: 300, FOOTER: 500}
