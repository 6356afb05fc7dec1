"""Pages of the platform, and of clients, webhooks and directories of the chosen tenant."""
