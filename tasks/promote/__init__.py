"""Promotion: whether the evidence allows a candidate to serve, and the move of the name that makes it so."""
