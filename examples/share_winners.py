"""Pass tuned winners on as JSON: parameters and figures only, verified again where they are used."""

import tempfile
from pathlib import Path

import tilewright as tw

mine = tw.Store()
text = mine.export_json()
print(f"{mine.info().records} records here; {len(text)} characters of winners to pass on")

with tempfile.TemporaryDirectory() as folder:
    friends = tw.Store(Path(folder) / "records.sqlite")
    print(f"{friends.import_json(text)} winners imported")

try:
    mine.import_json('{"format": "tilewright-tuned", "schema": 1, "records": [{"problem": "rm -rf"}]}')
except tw.StoreError as error:
    print("refused:", error)
