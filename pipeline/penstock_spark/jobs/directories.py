"""Directories on any file system that Spark can write to: a local disk, HDFS, an object store; accessed through
Hadoop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopDirectory"]


class HadoopDirectory:
    """A directory. `path`: a path or a URL."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        jvm: Any = session._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path(path)
        self._system: Any = self._path.getFileSystem(session._jsc.hadoopConfiguration())

    def __str__(self) -> str:
        return str(self._system.makeQualified(self._path).toString())

    def below(self, name: str) -> HadoopDirectory:
        """Return a directory in this one."""
        return HadoopDirectory(self._session, f"{self._path.toString()}/{name}")

    @property
    def exists(self) -> bool:
        """True if the directory exists."""
        return bool(self._system.exists(self._path))

    def names(self) -> list[str]:
        """Return the names in it, sorted; none if it does not exist."""
        if not self.exists:
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(self._path))

    def make(self) -> None:
        """Create it with its parents, unless it exists."""
        self._system.mkdirs(self._path)

    def remove(self) -> None:
        """Delete it with its contents; does nothing if it does not exist."""
        self._system.delete(self._path, True)

    def read(self, name: str) -> str:
        """Read a small text file in it. Raises FileNotFoundError."""
        file = self.below(name)
        if not file.exists:
            raise FileNotFoundError(str(file))
        jvm: Any = self._session._jvm
        stream = self._system.open(file._path)
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small text file in it, atomically. Raises FileExistsError."""
        file, unfinished = self.below(name), self.below(f".{name}.unfinished")
        if file.exists:
            raise FileExistsError(str(file))
        self._system.mkdirs(self._path)
        stream = self._system.create(unfinished._path, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if not self._system.rename(unfinished._path, file._path):
            raise FileExistsError(str(file))
