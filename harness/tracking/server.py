"""Writes records to an MLflow server through MLflow's public client.

MLflow is append-only: parameters, points and data sets can't be changed or removed. So a RUNNING
run is completed in place, and any other changed run is deleted and rewritten. The tag with the
record's digest is written last: an unchanged run costs nothing, and a run whose writer was killed
is rewritten. A new run takes three calls: create, end, and one batch.
"""

from __future__ import annotations

import getpass
import json
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from mlflow import MlflowClient, entities
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from harness.registry.declared import natural
from harness.tracking.record import (
    COMPUTED_IN,
    DIGEST,
    ID,
    MODEL,
    NOTE_TAG,
    VIEW_TAG,
    Dataset,
    LoggedPolicy,
    MetricValue,
    Record,
    TrackingError,
    metric_name,
)

Change: TypeAlias = Literal["created", "updated", "replaced", "unchanged"]

MOST_FOUND = 50_000
"""Maximum number of results of one MLflow search."""

_TYPES = {"int64": "long", "int32": "integer", "double": "double", "float": "float",
          "bool": "boolean"}  # fmt: skip
"""MLflow's names of Arrow column types; all others map to `string`."""


class TrackingServer:
    """An MLflow server, or a database used without one.

    The server chooses where artifacts go, unless a folder is given.
    """

    def __init__(self, uri: str, artifacts: Path | None) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        self._artifacts = artifacts
        self._experiments: dict[str, str] = {}
        self._user = "unknown"
        with suppress(OSError, KeyError):
            self._user = getpass.getuser()
        self._client.search_experiments(max_results=1)

    def find(self, records: Sequence[Record]) -> dict[str, list[Run]]:
        """Return the existing MLflow runs of the records, by identity."""
        self._experiments.clear()  # one may have been deleted since
        places = list(dict.fromkeys(self._experiment(record) for record in records))
        wanted = f"tags.`{ID}` = '{records[0].identity}'" if len(records) == 1 else ""
        found: dict[str, list[Run]] = {}
        for run in self._search(places, wanted):
            found.setdefault(run.data.tags[ID], []).append(run)
        return found

    def apply(
        self, record: Record, found: Iterable[Run], *, afresh: bool = False
    ) -> tuple[Change, str]:
        """Write a record to MLflow; return what was done and the MLflow run id.

        `found` has the existing runs of that identity, of which at most one is kept. With `afresh`
        a changed run is always replaced, as it may hold points of a lost attempt.
        """
        ordered = sorted(found, key=lambda run: run.data.tags.get(DIGEST) != record.digest)
        run, *spare = ordered or [None]
        for other in spare:
            self._delete(other)
        if run is None:
            return "created", self._write(record, self._create(record))
        if run.data.tags.get(DIGEST) == record.digest:
            return "unchanged", str(run.info.run_id)
        if run.info.status == "RUNNING" and not afresh:
            return "updated", self._write(record, run)
        self._delete(run)
        return "replaced", self._write(record, self._create(record))

    def add_points(self, run_id: str, points: Sequence[MetricValue]) -> None:
        """Add curve points to a run in one transaction."""
        self._client.log_batch(run_id, metrics=[_metric(point) for point in points])

    def end_left(self, place: str) -> None:
        """End the RUNNING runs of a work folder in which no command is computing."""
        numbers = [experiment.experiment_id for experiment in self._all_experiments()]
        left = f"attributes.status = 'RUNNING' AND tags.`{COMPUTED_IN}` = '{place}'"
        for run in self._search(numbers, left):
            self._client.delete_tag(run.info.run_id, DIGEST)
            self._client.set_terminated(run.info.run_id, "KILLED")

    def views(self) -> dict[str, str]:
        """Return the ids of the experiments that have a first view, by name."""
        found = {e.name: e.experiment_id for e in self._all_experiments() if VIEW_TAG in e.tags}
        return {name: str(found[name]) for name in sorted(found, key=natural)}

    def _all_experiments(self) -> list[entities.Experiment]:
        return list(self._client.search_experiments(max_results=MOST_FOUND))

    def _search(self, experiments: list[str], wanted: str) -> list[Run]:
        if not experiments:
            return []
        found = self._client.search_runs(experiments, wanted, max_results=MOST_FOUND)
        return [run for run in found if ID in run.data.tags]

    def _experiment(self, record: Record) -> str:
        """Return the id of a record's experiment, creating or restoring it if needed."""
        name = record.experiment
        if name not in self._experiments:
            place = None if self._artifacts is None else (self._artifacts / name).as_uri()
            found = self._client.get_experiment_by_name(name)
            if found is None:
                found = self._client.get_experiment(self._client.create_experiment(name, place))
            if place not in (None, found.artifact_location):
                # MLflow stores absolute paths: artifacts would go to the other folder.
                raise TrackingError(
                    f"the MLflow database beside {self._artifacts} was made in another folder, "
                    "where its artifacts are: delete it, and `harness sync` writes it anew"
                )
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            for key, text in {NOTE_TAG: record.note, **record.view}.items():
                if found.tags.get(key) != text:
                    self._client.set_experiment_tag(found.experiment_id, key, text)
            self._experiments[name] = found.experiment_id
        return self._experiments[name]

    def _create(self, record: Record) -> Run:
        tags = {**record.tags, ID: record.identity, "mlflow.user": self._user}
        return self._client.create_run(self._experiment(record), record.start_ms, tags, record.name)

    def _write(self, record: Record, run: Run) -> str:
        """Write what a run lacks, ending with the digest that marks it complete."""
        run_id, held, tags = str(run.info.run_id), run.data, dict(record.tags)
        inputs = run.inputs.dataset_inputs if run.inputs else []
        known = {(found.dataset.name, found.dataset.digest) for found in inputs}
        lacking = [_input(d) for d in record.datasets if (d.name, d.digest) not in known]
        if lacking:
            self._client.log_inputs(run_id, lacking)
        if record.describe is not None:
            tags[NOTE_TAG] = record.describe()
        if record.status != "RUNNING":
            self._write_files(run_id, record)
            if record.policy is not None:
                tags[MODEL] = self._write_policy(run_id, record, record.policy)
            if COMPUTED_IN in held.tags:
                self._client.delete_tag(run_id, COMPUTED_IN)
            self._client.set_terminated(run_id, record.status, record.end_ms)
        self._client.log_batch(
            run_id,
            metrics=[_metric(value, tags.get(MODEL)) for value in record.all_metrics()],
            params=[Param(*item) for item in sorted(record.params.items() - held.params.items())],
            tags=[RunTag(*tag) for tag in sorted(tags.items() - held.tags.items())]
            + [RunTag(DIGEST, record.digest)],
        )
        return run_id

    def _write_files(self, run_id: str, record: Record) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for path, content in record.files().items():
                if isinstance(content, bytes):
                    Path(folder, path).write_bytes(content)
                else:
                    self._client.log_table(run_id, {n: [*v] for n, v in content.items()}, path)
            if any(Path(folder).iterdir()):
                self._client.log_artifacts(run_id, folder)

    def _write_policy(self, run_id: str, record: Record, policy: LoggedPolicy) -> str:
        """Log a run's policy as an MLflow logged model and return its id."""
        logged = self._client.create_logged_model(
            self._experiment(record), policy.name, run_id, dict(policy.tags), dict(policy.params),
            "policy",
        )  # fmt: skip
        self._client.finalize_logged_model(logged.model_id, entities.LoggedModelStatus.READY)
        self._client.log_outputs(run_id, [entities.LoggedModelOutput(logged.model_id, 0)])
        return str(logged.model_id)

    def _delete(self, run: Run) -> None:
        self._client.delete_run(run.info.run_id)
        if MODEL in run.data.tags:
            with suppress(MlflowException):  # already deleted
                self._client.delete_logged_model(run.data.tags[MODEL])


def _metric(found: MetricValue, model: str | None = None) -> Metric:
    """Convert a value to MLflow's metric; scores (step 0) are attached to the logged model."""
    name, owner = metric_name(found.name), model if found.step == 0 else None
    return Metric(name, found.value, found.ms, found.step, model_id=owner)


def _input(dataset: Dataset) -> entities.DatasetInput:
    import pyarrow.parquet as pq

    path = dataset.locate()
    found = pq.read_metadata(path)
    columns = [
        {"name": field.name, "type": _TYPES.get(str(field.type), "string"), "required": True}
        for field in found.schema.to_arrow_schema()
    ]
    held = entities.Dataset(
        name=dataset.name,
        digest=dataset.digest,
        source_type="local",
        source=json.dumps({"uri": str(path)}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps({"num_rows": found.num_rows}),
    )
    return entities.DatasetInput(held, [entities.InputTag("mlflow.data.context", "training")])
