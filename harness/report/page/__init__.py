"""The report as one self-contained web page.

Numbers and wording match the terminal's (`harness.report.view`, `harness.report.blocks`). The page
adds drawings of gains (`marks`), pictures, and examples of prompts and answers (`examples`).
"""
