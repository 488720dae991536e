-- The segment protocol's fields and expert infos, most of them from the generated table.

if not ... then return end

local tables = require("penstock.segment_tables")

local fields = {}

fields.proto = Proto("pravega", "Pravega segment protocol")

local MAKERS = {
    i32 = function(name, label) return ProtoField.int32(name, label, base.DEC) end,
    i64 = function(name, label) return ProtoField.int64(name, label, base.DEC) end,
    u8 = function(name, label, labels) return ProtoField.uint8(name, label, base.DEC, labels) end,
    bool = function(name, label) return ProtoField.bool(name, label) end,
    name = function(name, label) return ProtoField.string(name, label) end,
    uuid = function(name, label) return ProtoField.guid(name, label) end,
    bytes32 = function(name, label) return ProtoField.bytes(name, label) end,
}
MAKERS.str = MAKERS.name
MAKERS.rest, MAKERS.event, MAKERS.value, MAKERS.zeros = MAKERS.bytes32, MAKERS.bytes32, MAKERS.bytes32, MAKERS.i64

local all = {}

local function add(field)
    all[#all + 1] = field
    return field
end

local function label_of(path)
    local text = path:gsub("[._]", " ")
    return text:sub(1, 1):upper() .. text:sub(2)
end

-- By the path of a value in its message: `segment`, `entries.key.version`.
fields.by_path = {}
for path, kind in pairs(tables.kinds) do
    fields.by_path[path] = add(MAKERS[kind]("pravega." .. path, label_of(path), tables.labels[path]))
end

fields.command = add(ProtoField.string("pravega.command", "Command", base.NONE, "Name of the message"))
fields.dialect = add(ProtoField.string("pravega.dialect", "Dialect", base.NONE, "released or draft"))
fields.type = add(ProtoField.int32("pravega.header.type", "Type", base.DEC))
fields.length = add(ProtoField.uint32("pravega.header.length", "Length", base.DEC, nil, nil, "Bytes behind the header"))
fields.count = add(ProtoField.int32("pravega.count", "Count", base.DEC, nil, nil, "Items of a list"))
fields.surplus = add(ProtoField.bytes("pravega.surplus", "Surplus", base.NONE, "Behind the last field: ignored"))
fields.event_data = add(ProtoField.bytes("pravega.event.data", "Event", base.NONE, "Payload of an event in a block"))
fields.event_length = add(ProtoField.int32("pravega.event.length", "Length of the event", base.DEC))
fields.event_part = add(ProtoField.bytes("pravega.event.part", "Part of an event", base.NONE, "It goes on elsewhere"))
fields.padding = add(ProtoField.uint32("pravega.padding", "Padding", base.DEC, nil, nil, "Bytes that are not stored"))
fields.undecoded = add(ProtoField.bytes("pravega.undecoded", "Undecoded"))
fields.response_in = add(ProtoField.framenum("pravega.response_in", "Response in", base.NONE, frametype.RESPONSE))
fields.request_in = add(ProtoField.framenum("pravega.request_in", "Request in", base.NONE, frametype.REQUEST))
fields.time = add(ProtoField.relative_time("pravega.time", "Time since the request"))
fields.proto.fields = all

fields.malformed = ProtoExpert.new("pravega.malformed", "Malformed message", expert.group.MALFORMED,
    expert.severity.ERROR)
fields.misplaced = ProtoExpert.new("pravega.misplaced", "Message out of place", expert.group.PROTOCOL,
    expert.severity.WARN)
fields.cut = ProtoExpert.new("pravega.cut", "Not all of it is in the capture", expert.group.UNDECODED,
    expert.severity.NOTE)
fields.proto.experts = { fields.malformed, fields.misplaced, fields.cut }

return fields
