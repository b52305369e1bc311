"""What protoc makes of sale.proto, which is built here from its description.

syntax = "proto3"; package shop;
message Other { message Inner { string name = 1; } }
message Sale {
  int64 id = 1;  string item = 2;  double price = 3;  google.protobuf.Timestamp at = 4;
  Color color = 5;  repeated Stop stops = 6;  map<int32, Stop> by_number = 7;
  optional string note = 8;  bytes raw = 9;  google.protobuf.Duration wait = 10;
  google.protobuf.Int64Value cents = 11;  google.protobuf.Struct more = 12;  Sale next = 13;
  oneof paid { string card = 14;  bool cash = 15; }
  enum Color { NONE = 0; RED = 1; }
  message Stop { string place = 1; repeated int32 days = 2; }
}
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    duration_pb2,  # noqa: F401  registers its types
    struct_pb2,  # noqa: F401
    timestamp_pb2,  # noqa: F401
    wrappers_pb2,  # noqa: F401
)
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

_KINDS: dict[str, Any] = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}


def _field(message: DescriptorProto, name: str, kind: str, **more: Any) -> None:
    added = message.field.add(name=name, number=len(message.field) + 1, **more)
    if more.get("label") is None:
        added.label = FieldDescriptorProto.LABEL_OPTIONAL
    if kind in _KINDS:
        added.type = _KINDS[kind]
    else:
        added.type_name = kind
        is_enum = kind.endswith("Color")
        added.type = (
            FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
        )


def _described() -> FileDescriptorProto:
    known = ("timestamp", "duration", "wrappers", "struct")
    file = FileDescriptorProto(name="sale.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in known)
    repeated = {"label": FieldDescriptorProto.LABEL_REPEATED}
    _field(file.message_type.add(name="Other").nested_type.add(name="Inner"), "name", "string")
    sale = file.message_type.add(name="Sale")
    color = sale.enum_type.add(name="Color")
    color.value.add(name="NONE", number=0)
    color.value.add(name="RED", number=1)
    stop = sale.nested_type.add(name="Stop")
    _field(stop, "place", "string")
    _field(stop, "days", "int32", **repeated)
    entry = sale.nested_type.add(name="ByNumberEntry")
    entry.options.map_entry = True
    _field(entry, "key", "int32")
    _field(entry, "value", ".shop.Sale.Stop")
    _field(sale, "id", "int64")
    _field(sale, "item", "string")
    _field(sale, "price", "double")
    _field(sale, "at", ".google.protobuf.Timestamp")
    _field(sale, "color", ".shop.Sale.Color")
    _field(sale, "stops", ".shop.Sale.Stop", **repeated)
    _field(sale, "by_number", ".shop.Sale.ByNumberEntry", **repeated)
    _field(sale, "note", "string", proto3_optional=True, oneof_index=1)
    _field(sale, "raw", "bytes")
    _field(sale, "wait", ".google.protobuf.Duration")
    _field(sale, "cents", ".google.protobuf.Int64Value")
    _field(sale, "more", ".google.protobuf.Struct")
    _field(sale, "next", ".shop.Sale")
    _field(sale, "card", "string", oneof_index=0)
    _field(sale, "cash", "bool", oneof_index=0)
    sale.oneof_decl.add(name="paid")
    sale.oneof_decl.add(name="_note")
    return file


Default().AddSerializedFile(_described().SerializeToString())
Sale: Any = GetMessageClass(Default().FindMessageTypeByName("shop.Sale"))
Inner: Any = GetMessageClass(Default().FindMessageTypeByName("shop.Other.Inner"))
