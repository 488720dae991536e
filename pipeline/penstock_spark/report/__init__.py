"""The report: one self-contained HTML file, with plots (SVG) and tables of the jobs' results.

from penstock_spark.report import gather, page

path.write_text(page(gather(connections, messages, records)), encoding="utf-8")
"""

from penstock_spark.report.findings import (
    Findings,
    Results,
    gather,
    gather_audit,
    gather_results,
    gather_streams,
    results,
)
from penstock_spark.report.page import page

__all__ = ["Findings", "Results", "gather", "gather_audit", "gather_results", "gather_streams", "page", "results"]
