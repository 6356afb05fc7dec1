"""Mails: queued in the database that they are about, in the transaction of what they tell; `mail_delivery` sends them."""
