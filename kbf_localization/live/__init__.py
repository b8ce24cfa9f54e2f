"""A page that shows a localization as it happens."""
