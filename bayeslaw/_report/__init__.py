"""Self-contained pages: everything about a table of runs, and a run while it trains.

Imports `plots`, `datasets`, `_decisions` and the rooms below them.
"""

from bayeslaw._report.following import follow_page as follow_page
from bayeslaw._report.page import Report as Report
from bayeslaw._report.page import report as report
