"""Inference engines for the policy, behind one interface.

    transformers    in process, with our own sampling loop             (`transformers_engine`)
    vllm, sglang    a server that the harness starts                   (`served`)
    endpoint        any server with OpenAI's completions API           (`served`)

Every engine gets the same tokens, the same sampling settings and one seed per answer (`request`),
so request order and batching affect only rounding. Answers are stored as they arrive (`solver`).
"""
