"""Opens Spark sessions, and runs jobs in them.

`spark_port` is the interface, `session_host` runs jobs with limits, `local_spark` opens a session
here, `spark_cluster` on a cluster of Spark, `spark_connect` at a server of Spark Connect,
`spark_on_ray` on the cluster of Ray, and chooses by default; `environment` prepares Java.
"""
