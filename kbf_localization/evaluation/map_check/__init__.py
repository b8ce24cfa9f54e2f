"""Where a map will work and where not, found out from its own drives before deploying."""
