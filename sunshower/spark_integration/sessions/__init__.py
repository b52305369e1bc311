"""Opens Spark sessions, and runs jobs in them.

`spark_port` is the interface, `session_host` runs jobs with limits, `local_spark` opens a session
here, `spark_on_ray` on the cluster; `environment` prepares Java.
"""
