"""``ciranda report``: what a job did, from what ``ciranda run --output-dir`` has kept, as a page and as JSON.

`job` reads the folder, `facts` and `recorded` find what it says, `advice` what to try, `page` shows it.
"""

from __future__ import annotations

from ciranda.report.compare import comparison_of, comparison_page
from ciranda.report.facts import facts_of
from ciranda.report.job import read
from ciranda.report.page import page_of

__all__ = ["comparison_of", "comparison_page", "facts_of", "page_of", "read"]
