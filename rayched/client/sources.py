"""What a program may hand to `submit`: typed objects, or manifests as text, plain data or path. Pure but for reading files.

    objects_of("apiVersion: v1 ...")     YAML or JSON text, several documents and Lists too
    objects_of(Path("app.yaml"))         a file
    objects_of({"kind": "Pod", ...})     one document as plain data
    objects_of(pod), objects_of([pod, Path("db.yaml")])

Everything that is wrong with a manifest is told at once, before anything is sent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import Message

from rayched.api.kinds import AnyObject
from rayched.api.manifest import ReadResult, read_text
from rayched.client.calls import as_object
from rayched.v1.workloads_pb2 import Object

Manifest: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""Text, the path of a file, or one document as plain data."""
Source: TypeAlias = AnyObject | Object | Manifest


def objects_of(source: Source | Iterable[Source]) -> list[ReadResult]:
    """The objects, in order, each with the fields of its manifest that are left out.

    Raises ManifestErrors and TextError (both ValueError), and OSError for a file that cannot be read.
    """
    if isinstance(source, Message):
        return [ReadResult(as_object(source))]
    if isinstance(source, str):
        return read_text(source, "manifest")
    if isinstance(source, os.PathLike):
        return read_text(Path(source).read_text(encoding="utf-8"), os.fspath(source))
    if isinstance(source, Mapping):
        return read_text(json.dumps(source), "manifest")
    return [found for one in source for found in objects_of(one)]
