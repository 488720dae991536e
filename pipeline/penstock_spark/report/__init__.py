"""The report: one HTML file, which needs nothing beside it, with plots (SVG) and tables of what the jobs found.

from penstock_spark.report import gather, page
path.write_text(page(gather(connections, messages, records)), encoding="utf-8")
"""

from penstock_spark.report.findings import Findings, gather, gather_audit, gather_streams
from penstock_spark.report.page import page

__all__ = ["Findings", "gather", "gather_audit", "gather_streams", "page"]
