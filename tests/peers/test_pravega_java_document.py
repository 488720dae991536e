"""The Java program of docs/protocols/segment.md, compiled and run as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.pravega.clients import bodies_by_s2s
from support.pravega.java import MAVEN_SECONDS, running_java
from support.process import GatewayProcess

PAGE = Path(__file__).parents[2] / "docs/protocols/segment.md"
POM = Path(__file__).parent / "java/client/pom.xml"


@pytest.mark.peer
@pytest.mark.timeout(MAVEN_SECONDS + 60)
def test_the_page_s_program(fresh_gateway: GatewayProcess, tmp_path: Path) -> None:
    (program,) = re.findall(r"```java\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "pravega-client:0.13.0" in PAGE.read_text() and "<version>0.13.0</version>" in POM.read_text()
    shutil.copy(POM, tmp_path)
    (tmp_path / "Example.java").write_text(program.replace(":9090", f":{fresh_gateway.controller_port}"))
    with running_java(tmp_path, "Example", tmp_path) as java:
        assert java.ask() == ["read", "hello"]
    assert bodies_by_s2s(fresh_gateway, "from-java") == [b"hello"]
