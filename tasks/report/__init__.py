"""The report: one night, told to a person as a page, in the terminal, and as Prefect artifacts."""
