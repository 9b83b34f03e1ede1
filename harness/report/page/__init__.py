"""The report as one self-contained web page.

`contents` gathers what is on the page and where each number comes from; `page` renders it. Numbers
and wording match the terminal's (`harness.report.view`, `harness.report.blocks`). The page adds
drawings (`marks`) and examples of prompts and answers (`examples`).
"""
