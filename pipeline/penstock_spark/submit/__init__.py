"""What `spark-submit` runs. In a directory of its own, which spark-submit puts before all others that modules are
looked for in."""
