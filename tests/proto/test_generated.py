"""The checked-in modules are up to date with their .proto files."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

import penstock_proto
from penstock_proto import pravega_controller_pb2, records_pb2, s2_pb2

ROOM = Path(penstock_proto.__file__).parents[1]


def compiled(name: str, directory: Path) -> FileDescriptorProto:
    """Compile a file with protoc now. Generated text differs between protoc's versions, its meaning does not."""
    pytest.importorskip("grpc_tools")
    out = directory / "set.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={out}", name]
    subprocess.run(command, cwd=ROOM, check=True, timeout=60)
    [file] = FileDescriptorSet.FromString(out.read_bytes()).file
    for message in file.message_type:
        forget_json_names(message)
    return file


def forget_json_names(message: DescriptorProto) -> None:
    """protoc adds them to a set, and leaves them out of Python modules."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        forget_json_names(nested)


@pytest.mark.parametrize(
    "module", [s2_pb2, records_pb2, pravega_controller_pb2], ids=["s2", "records", "pravega_controller"]
)
def test_modules_are_generated_from_their_schemas(module: object, tmp_path: Path) -> None:
    descriptor: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    assert compiled(descriptor.name, tmp_path) == FileDescriptorProto.FromString(descriptor.serialized_pb)


def test_every_schema_has_its_modules() -> None:
    for schema in (ROOM / "penstock_proto").glob("*.proto"):
        for suffix in ("_pb2.py", "_pb2.pyi"):
            assert schema.with_name(schema.stem + suffix).exists()


@pytest.mark.parametrize("name", ["StreamPosition", "AppendRecord", "AppendInput", "SequencedRecord", "ReadBatch"])
def test_columns_schema_reads_the_same_fields(name: str) -> None:
    """Same names, numbers and presence; only `headers` is read as a single piece of bytes."""
    full = s2_pb2.DESCRIPTOR.message_types_by_name[name].fields
    columns = records_pb2.DESCRIPTOR.message_types_by_name[name].fields
    assert [(f.name, f.number) for f in full] == [(f.name, f.number) for f in columns]
    for one, other in zip(full, columns, strict=True):
        if one.name == "headers":
            assert (other.type, other.has_presence, other.is_repeated) == (other.TYPE_BYTES, True, False)
        else:
            assert (one.type, one.has_presence, one.is_repeated) == (other.type, other.has_presence, other.is_repeated)


@pytest.mark.parametrize(("name", "s2_name"), [("Header", "Header"), ("EnvelopedRecord", "AppendRecord")])
def test_records_of_envelopes_have_the_fields_of_appended_records(name: str, s2_name: str) -> None:
    ours, s2s = (
        module.DESCRIPTOR.message_types_by_name[message].fields
        for module, message in ((records_pb2, name), (s2_pb2, s2_name))
    )
    assert ours and [shape(field) for field in ours] == [shape(field) for field in s2s]


def shape(field: FieldDescriptor) -> tuple[object, ...]:
    return field.name, field.number, field.type, field.has_presence, field.is_repeated


def test_the_official_sdk_may_live_in_the_same_process() -> None:
    """Both register their messages in one pool: a name of the SDK's would be refused."""
    pytest.importorskip("s2_sdk")
    code = "import s2_sdk, s2_sdk._generated.s2.v1.s2_pb2, penstock_proto.s2_pb2, penstock_proto.records_pb2"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_controllers_calls_have_the_paths_that_clients_use() -> None:
    """gRPC makes the path of the service's full name and the call's (fact sheet 3.1); all are unary."""
    service = pravega_controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
    assert service.full_name == "io.pravega.controller.stream.api.grpc.v1.ControllerService"
    assert {"createScope", "getURI", "getSegmentsImmediatlyFollowing"} <= set(service.methods_by_name)
    assert not [method.name for method in service.methods if method.client_streaming or method.server_streaming]


def test_controllers_messages_have_the_numbers_of_the_fact_sheet() -> None:
    """Written out by hand from its list (3.1)."""
    stream = pravega_controller_pb2.StreamInfo(scope="s", stream="t")
    request = pravega_controller_pb2.GetSegmentsRequest(streamInfo=stream, timestamp=7)
    assert request.SerializeToString() == bytes.fromhex("0a060a017312017410 07")
    segment = pravega_controller_pb2.SegmentId(streamInfo=stream, segmentId=1 << 32)
    located = pravega_controller_pb2.SegmentRange(segmentId=segment, minKey=0.5, maxKey=1.0)
    ranges = pravega_controller_pb2.SegmentRanges(segmentRanges=[located])
    assert ranges.SerializeToString() == bytes.fromhex(
        "0a22 0a0e 0a060a0173120174 108080808010 11000000000000e03f 19000000000000f03f"
    )
