"""The settings: one table, and where their values come from."""

from gateway.settings.lookup import Resolved, resolve, unknown_variables
from gateway.settings.table import SETTINGS, SettingError, Settings

__all__ = ["SETTINGS", "Resolved", "SettingError", "Settings", "resolve", "unknown_variables"]
