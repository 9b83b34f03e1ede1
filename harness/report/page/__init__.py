"""The report as one web page that stands alone: no request, nothing beside it, one small script.

`contents` says what is on the page and where each number comes from, `from_store` and
`from_results` gather it, `page` writes it. Numbers and wording come from `harness.report.view` and
its like, which the terminal uses as well; here they are laid out (`layout`), drawn (`drawing`), and
joined with what only a page has room for: the whole paper in one picture (`overview`), prompts and
answers (`examples`).
"""
