"""What happens, in which order: the nightly Prefect flow, and the command line.

No logic of its own: the steps are in `tasks`, the stores in `storage`. Only this floor reads
nightschool.toml, talks to people, and knows exit codes.
"""
