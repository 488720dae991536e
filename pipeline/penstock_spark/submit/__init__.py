"""The program for `spark-submit`, in a directory of its own, which spark-submit puts first in the path of modules."""
