"""Sends the mails that `userflow.mail` has queued: behind the response, and again if the mail server did not take them."""
