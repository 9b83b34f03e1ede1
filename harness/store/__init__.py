"""The stage store: content-addressed outputs, the one source of truth for reports and tracking."""

from harness.store.faults import StoreError
from harness.store.fingerprint import FingerprintError, Json, canonical_json
from harness.store.manifest import Failure, Manifest
from harness.store.progress import Point
from harness.store.provenance import Provenance, available_cores, collect_provenance
from harness.store.stage import Stage, StageContext, StageRecord
from harness.store.store import STATES, State, Store

__all__ = [
    "STATES",
    "Failure",
    "FingerprintError",
    "Json",
    "Manifest",
    "Point",
    "Provenance",
    "Stage",
    "StageContext",
    "StageRecord",
    "State",
    "Store",
    "StoreError",
    "available_cores",
    "canonical_json",
    "collect_provenance",
]
