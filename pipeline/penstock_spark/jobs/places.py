"""Directories wherever Spark can write: a local disk, HDFS, an object store; asked through Hadoop, as Spark does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Place"]


class Place:
    """A directory. `path`: a path or a URL."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        jvm: Any = session._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path(path)
        self._system: Any = self._path.getFileSystem(session._jsc.hadoopConfiguration())

    def __str__(self) -> str:
        return str(self._system.makeQualified(self._path).toString())

    def below(self, name: str) -> Place:
        """A directory in this one."""
        return Place(self._session, f"{self._path.toString()}/{name}")

    @property
    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._system.exists(self._path))

    def names(self) -> list[str]:
        """What is in it, sorted; nothing where it is not there."""
        if not self.exists:
            return []
        return sorted(str(found.getPath().getName()) for found in self._system.listStatus(self._path))

    def remove(self) -> None:
        """Delete it with all that is in it; nothing happens where it is not there."""
        self._system.delete(self._path, True)
