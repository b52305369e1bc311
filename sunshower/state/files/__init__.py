"""Files and folders as storage."""
