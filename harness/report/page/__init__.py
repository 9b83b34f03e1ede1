"""The report as one self-contained web page.

`contents` gathers what is on the page and where each number comes from; `page` renders it. Numbers
and wording are those of the terminal (`harness.report.view`, `harness.report.blocks`). The page has
drawings (`marks`) and examples of prompts and answers (`examples`) besides.
"""
