"""The commands of `nightschool`, one module a noun; each parses, calls one function of a lower floor, and
prints."""
