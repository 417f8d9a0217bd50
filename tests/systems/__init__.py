"""Acceptance: one test for each behaviour of the five systems that must work here."""
