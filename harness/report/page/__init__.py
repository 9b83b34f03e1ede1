"""The report as one web page that stands alone: no request, nothing beside it, one small script.

`contents` gathers what is on the page, with where each number comes from; `page` writes it. Numbers
and wording come from `harness.report.view` and its like, which the terminal uses as well; here they
are joined with what only a page has room for: drawings (`drawing`), prompts and answers
(`examples`).
"""
