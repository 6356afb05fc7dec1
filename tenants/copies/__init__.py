"""Databases on a server, and their copies: dumps, sealed archives, comparisons."""
