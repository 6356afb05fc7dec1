"""The parts every page of the console shares: access, lists, forms, confirmation, errors, and the site itself."""
