"""Which replies answer which requests: a server that says something else is not to be trusted with the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock_codecs.segment import draft, released
from penstock_codecs.segment.refusals import REFUSALS

__all__ = ["answers"]

_ANSWERS: Final[Mapping[type, tuple[type, ...]]] = {
    released.SetupAppend: (released.AppendSetup,),
    released.ReadSegment: (released.SegmentRead,),
    released.GetStreamSegmentInfo: (released.StreamSegmentInfo,),
    released.CreateSegment: (released.SegmentCreated,),
    released.DeleteSegment: (released.SegmentDeleted,),
    released.TruncateSegment: (released.SegmentTruncated,),
    released.SealSegment: (released.SegmentSealed,),
    released.GetSegmentAttribute: (released.SegmentAttribute,),
    released.UpdateSegmentAttribute: (released.SegmentAttributeUpdated,),
    released.MergeSegments: (released.SegmentsMerged, released.SegmentAttributeUpdated),
    released.MergeSegmentsBatch: (released.SegmentsBatchMerged,),
    released.CreateTableSegment: (released.SegmentCreated,),
    released.DeleteTableSegment: (released.SegmentDeleted,),
    released.GetTableSegmentInfo: (released.TableSegmentInfo,),
    released.UpdateTableEntries: (released.TableEntriesUpdated,),
    released.RemoveTableKeys: (released.TableKeysRemoved,),
    released.ReadTable: (released.TableRead,),
    released.ReadTableEntries: (released.TableEntriesRead,),
    released.ReadTableEntriesDelta: (released.TableEntriesDeltaRead,),
    draft.SetupAppend: (draft.AppendSetup,),
    draft.ReadSegment: (draft.SegmentRead,),
}


def answers(request: Any, reply: Any) -> bool:
    """Whether this may be the answer to that, or refuse it."""
    return isinstance(reply, (*_ANSWERS[type(request)], *REFUSALS))
