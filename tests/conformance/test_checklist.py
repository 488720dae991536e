"""Every item of the S2 checklist has a test that bears its number (S2 fact sheet, section 10)."""

import re
from pathlib import Path

ITEMS = 89


def test_every_item_has_a_test() -> None:
    folder = Path(__file__).parent
    names = "\n".join(path.read_text() for path in folder.glob("test_*.py"))
    found = {int(number) for number in re.findall(r"^(?:async )?def test_items?_(\d+)_", names, re.MULTILINE)}
    # One test may answer for two items: test_items_44_and_69_...
    found |= {int(number) for number in re.findall(r"^(?:async )?def test_items_\d+_and_(\d+)_", names, re.MULTILINE)}
    assert found == set(range(1, ITEMS + 1))
