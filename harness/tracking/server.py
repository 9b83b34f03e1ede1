"""Writes records to an MLflow server through MLflow's public client.

MLflow is append-only: a SCHEDULED run is completed in place, and any other changed run is deleted
and rewritten. The tag with the record's digest is written last: an unchanged run costs nothing, and
a run whose writer was killed is rewritten.
"""

from __future__ import annotations

import getpass
import json
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag, ViewType

from harness.tracking import record as records
from harness.tracking.record import DIGEST, ID, Record, TrackingError, metric_name

Change: TypeAlias = Literal["created", "updated", "replaced", "unchanged"]

MOST_FOUND = 50_000
"""Maximum number of results of one MLflow search."""

_PARENT = "mlflow.parentRunId"
_NOTE = "mlflow.note.content"
_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tells MLflow's pages that an experiment has training runs, not LLM traces."""


class TrackingServer:
    """An MLflow server, or a database used without one, which needs a folder for artifacts."""

    def __init__(
        self, uri: str, artifacts: Path | None = None, database: Path | None = None
    ) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        self._artifacts = artifacts
        self._database = database
        self._experiments: dict[str, str] = {}
        self._user = "unknown"
        with suppress(OSError, KeyError):
            self._user = getpass.getuser()
        self._client.search_experiments(max_results=1)

    def write(self, wanted: Sequence[Record]) -> Iterator[tuple[str, Change]]:
        """Write records, parents first; yield the identity of each and what was done."""
        found = self._find(wanted)
        ids = {identity: runs[0].info.run_id for identity, runs in found.items()}
        unwanted = found.keys() - {record.identity for record in wanted}
        others = [run for identity in unwanted for run in found[identity]]
        for record in wanted:
            runs, parent = found.get(record.identity, []), ids.get(record.parent or "")
            change, ids[record.identity] = self._apply(record, runs, parent)
            if change == "replaced":
                gone = {run.info.run_id for run in runs}
                for child in others:
                    if child.data.tags.get(_PARENT) in gone:
                        self._client.set_tag(child.info.run_id, _PARENT, ids[record.identity])
            yield record.identity, change

    def _find(self, wanted: Sequence[Record]) -> dict[str, list[Run]]:
        """Return the existing MLflow runs of the records' experiments, by identity."""
        self._experiments = self._ready_experiments(wanted)  # one may have been deleted since
        only = f"tags.`{ID}` = '{wanted[0].identity}'" if len(wanted) == 1 else ""
        experiments, found = [*self._experiments.values()], dict[str, list[Run]]()
        for run in self._client.search_runs(experiments, only, max_results=MOST_FOUND):
            if ID in run.data.tags:
                found.setdefault(run.data.tags[ID], []).append(run)
        return found

    def _apply(
        self, record: Record, found: Iterable[Run], parent: str | None
    ) -> tuple[Change, str]:
        """Write a record to MLflow; return what was done and the MLflow run id.

        Of the existing runs `found` at most one is kept.
        """
        ordered = sorted(found, key=lambda run: run.data.tags.get(DIGEST) != record.digest)
        run, *spare = ordered or [None]
        for other in spare:
            self._client.delete_run(other.info.run_id)
        if run is None:
            return "created", self._write(record, self._create(record, parent))
        is_same = run.data.tags.get(DIGEST) == record.digest
        if not is_same and run.info.status != "SCHEDULED":
            self._client.delete_run(run.info.run_id)
            return "replaced", self._write(record, self._create(record, parent))
        if parent is not None and run.data.tags.get(_PARENT) != parent:
            self._client.set_tag(run.info.run_id, _PARENT, parent)
        return ("unchanged", run.info.run_id) if is_same else ("updated", self._write(record, run))

    def delete_default_experiment(self) -> None:
        """Delete the experiment that every new database has, which would stay empty."""
        self._client.delete_experiment("0")

    def _ready_experiments(self, wanted: Sequence[Record]) -> dict[str, str]:
        """Return the ids of the records' experiments, creating or restoring them if needed."""
        every = self._client.search_experiments(ViewType.ALL, max_results=MOST_FOUND)
        known = {experiment.name: experiment for experiment in every}
        ready = {}
        firsts: dict[str, Record] = {}
        for record in wanted:  # rows come first
            firsts.setdefault(record.experiment, record)
        for name, first in firsts.items():
            place = None if self._artifacts is None else (self._artifacts / name).as_uri()
            tags = {_NOTE: first.note, **_KIND}
            found = known.get(name)
            if found is None:
                ready[name] = self._client.create_experiment(name, place, tags)
                continue
            if place not in (None, found.artifact_location):
                # MLflow stores absolute paths: artifacts would go to the other folder.
                raise TrackingError(
                    "this work folder was moved, and its MLflow database names the old place: type "
                    f"`rm {shlex.quote(str(self._database))} && harness sync`; the commands that "
                    "computed what that lacks write it again"
                )
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            if first.parent is not None and _NOTE in found.tags:
                del tags[_NOTE]  # a run alone does not know the table's answer
            for key, text in tags.items() - found.tags.items():
                self._client.set_experiment_tag(found.experiment_id, key, text)
            ready[name] = found.experiment_id
        return ready

    def _create(self, record: Record, parent: str | None) -> Run:
        tags = {**record.tags, ID: record.identity, "mlflow.user": self._user}
        if parent is not None:
            tags[_PARENT] = parent
        experiment = self._experiments[record.experiment]
        return self._client.create_run(experiment, record.start_ms, tags, record.name)

    def _write(self, record: Record, run: Run) -> str:
        """Write what a run lacks, ending with the digest that marks it complete."""
        run_id, held, tags = str(run.info.run_id), run.data, dict(record.tags)
        try:
            inputs = run.inputs.dataset_inputs if run.inputs else []
            known = {(found.dataset.name, found.dataset.digest) for found in inputs}
            lacking = [_input(d) for d in record.datasets if (d.name, d.sha256[:16]) not in known]
            if lacking:
                self._client.log_inputs(run_id, lacking)
            tags |= self._write_files(run_id, record.files())
            self._client.set_terminated(run_id, record.status, record.end_ms)
            self._client.log_batch(
                run_id,
                metrics=[
                    Metric(metric_name(it.name), it.value, it.ms, it.step)
                    for it in record.all_metrics()
                ],
                params=[Param(*it) for it in sorted(record.params.items() - held.params.items())],
                tags=[RunTag(*tag) for tag in sorted(tags.items() - held.tags.items())]
                + [RunTag(DIGEST, record.digest)],
            )
        except KeyboardInterrupt:
            self._client.set_terminated(run_id, "KILLED")
            raise
        return run_id

    def _write_files(self, run_id: str, files: records.Files) -> dict[str, str]:
        """Write a run's artifacts, its tables faster than `log_table`; return their tag."""
        tables = []
        with tempfile.TemporaryDirectory() as folder:
            for path, content in files.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                if not isinstance(content, bytes):
                    tables.append({"path": path, "type": "table"})
                    table = {"columns": [*content], "data": [*zip(*content.values(), strict=True)]}
                    content = json.dumps(table).encode()
                file.write_bytes(content)
            if files:
                self._client.log_artifacts(run_id, folder)
        return {"mlflow.loggedArtifacts": json.dumps(tables)} if tables else {}


def _input(dataset: records.Dataset) -> DatasetInput:
    held = Dataset(
        name=dataset.name,
        digest=dataset.sha256[:16],  # MLflow allows 36 characters
        source_type="local",
        source=json.dumps({"uri": dataset.path}),
    )
    return DatasetInput(held, [InputTag("mlflow.data.context", "training")])
