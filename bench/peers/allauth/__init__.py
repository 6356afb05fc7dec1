"""django-allauth's headless API for apps, with session tokens."""
