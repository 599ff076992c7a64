"""Ingest: from the logs that agents leave to conversations in the lake.

Keeps true: formats are recognised by content, a bad record costs only itself, and every record ends in the
lake or in the quarantine with a reason and the place where it stood.
"""
