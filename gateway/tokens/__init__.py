"""The tokens that principals show: those issued here, and those of another issuer."""
