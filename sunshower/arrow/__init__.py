"""Records as Arrow tables, for Spark and Parquet: `record_columns` has the column of each
annotation, and converts both ways."""
