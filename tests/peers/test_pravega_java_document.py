"""The Java programs of the pages about Pravega's protocols, compiled and run as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.pravega.clients import bodies_by_s2s
from support.pravega.java import MAVEN_SECONDS, running_java
from support.process import GatewayProcess

PAGES = Path(__file__).parents[2] / "docs/protocols"
POM = Path(__file__).parent / "java/client/pom.xml"


@pytest.mark.peer
@pytest.mark.timeout(MAVEN_SECONDS + 60)
@pytest.mark.parametrize(("page", "printed"), [("segment", "read hello"), ("controller", "version 1:0")])
def test_the_page_s_program(fresh_gateway: GatewayProcess, tmp_path: Path, page: str, printed: str) -> None:
    (program,) = re.findall(r"```java\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL)
    assert (
        "pravega-client:0.13.0" in (PAGES / "segment.md").read_text() and "<version>0.13.0</version>" in POM.read_text()
    )
    shutil.copy(POM, tmp_path)
    (tmp_path / "Example.java").write_text(program.replace(":9090", f":{fresh_gateway.controller_port}"))
    with running_java(tmp_path, "Example", tmp_path) as java:
        assert " ".join(java.ask()) == printed
    if page == "segment":
        assert bodies_by_s2s(fresh_gateway, "from-java") == [b"hello"]
