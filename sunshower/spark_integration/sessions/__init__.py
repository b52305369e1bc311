"""Spark sessions: `spark_port` is the interface, `session_host` runs jobs in a session with limits,
`local_spark` opens it here, `spark_on_ray` on the cluster, `environment` prepares Java."""
