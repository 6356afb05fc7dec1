"""How the console writes times: as logs and the API do, so that staff in several zones can compare them."""
