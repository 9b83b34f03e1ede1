"""The report as one web page that stands alone: no script, no request, nothing beside it.

`contents` says what is on the page, `from_store` and `from_results` gather it, `page` writes it.
Numbers and wording come from `harness.report.view` and its like, which the terminal uses as well;
here they are laid out, drawn, and joined with what only a page has room for: examples of prompts
and answers (`examples`, `answers`), what rows cost, and where each number comes from
(`provenance`).
"""
