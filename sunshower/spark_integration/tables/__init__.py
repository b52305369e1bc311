"""Records as Arrow and Spark tables, and folders of committed batches."""
