"""A deterministic simulation of several workers on one store; see README.md in this folder."""
