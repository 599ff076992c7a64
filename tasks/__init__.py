"""The steps of a night: ingest, convert, train, evaluate, promote, report.

One package a step. The steps are plain functions that know nothing of Prefect; each package has one thin
`task.py` that wraps them. They use storage, sandbox and serving, and never each other's insides.
"""
