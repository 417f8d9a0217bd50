"""Subscriptions: a catalog's commits are delivered to addresses, in order and at least once."""
