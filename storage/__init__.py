"""What is kept: the lake of traces, dataset versions, runs, and the checkpoint registry.

Knows no step of the pipeline. Everything in it is a plain file under one home directory, written once and
moved into place in one step, so a reader never sees half of anything.
"""
