"""Records as Arrow tables: the types of their columns, and conversions of their values."""
