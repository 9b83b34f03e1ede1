"""What a plan costs before anything is spent: GPU hours, dollars and disk, stage by stage.

The model is arithmetic on three files of data: shapes of models (`model_shapes.yaml`), GPUs
(`gpus.yaml`) and assumptions (`assumptions.yaml`), where each number has its source beside it. It
knows nothing of a run but its stages, so equal stages cost once and done ones nothing.
"""
