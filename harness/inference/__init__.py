"""Engines that give the policy's answers, behind one interface.

    transformers    in this process, with our own sampling loop        (`transformers_engine`)
    vllm, sglang    a server that the harness starts                   (`served`)
    endpoint        any server that speaks OpenAI's completions        (`served`)

Every engine gets the same tokens, the same sampling and a seed of its own for each answer
(`request`), so that neither the order of the requests nor what is answered beside them decides
anything but rounding. Answers are kept as they come (`solver`).
"""
