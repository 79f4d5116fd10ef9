"""Floor 4: the self-contained HTML report of a fit."""

from latlin.report.assess import Assessment, assess
from latlin.report.facts import Facts, gather
from latlin.report.page import render, write_report

__all__ = ["Assessment", "Facts", "assess", "gather", "render", "write_report"]
