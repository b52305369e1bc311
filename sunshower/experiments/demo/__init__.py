"""The demo experiment: counts words on Ray, kills a worker process and checks the counts."""
