-- S2S: the frames of S2's sessions, with their protobuf messages.

if not ... then return end

local flows = require("penstock.flows")
local protobuf = require("penstock.protobuf")
local reading = require("penstock.reading")
local tables = require("penstock.s2_tables")

local s2s = {}

local proto = Proto("s2s", "S2S")
s2s.proto = proto

local COMPRESSIONS = { [0] = "none", [1] = "zstd", [2] = "gzip", [3] = "unknown" }
local LENGTH, HEAD = 3, 4 -- bytes of the length, and with the flags

local f = {
    length = ProtoField.uint24("s2s.length", "Length", base.DEC, nil, nil, "Flags and payload"),
    flags = ProtoField.uint8("s2s.flags", "Flags", base.HEX),
    terminal = ProtoField.bool("s2s.flags.terminal", "Terminal", 8, nil, 0x80),
    compression = ProtoField.uint8("s2s.flags.compression", "Compression", base.DEC, COMPRESSIONS, 0x60),
    reconnect = ProtoField.bool("s2s.flags.reconnect_advised", "Reconnect advised", 8, nil, 0x10),
    message = ProtoField.string("s2s.message", "Message", base.NONE, "AppendInput, AppendAck, ReadBatch or Terminal"),
    records = ProtoField.uint32("s2s.records", "Records", base.DEC, nil, nil, "How many"),
    heartbeat = ProtoField.bool("s2s.heartbeat", "Heartbeat", base.NONE, nil, nil, "A ReadBatch with a tail only"),
    payload = ProtoField.bytes("s2s.payload", "Payload", base.NONE, "As it was sent, maybe compressed"),
    status = ProtoField.uint16("s2s.status", "Status", base.DEC, nil, nil, "Of a terminal frame: as HTTP's"),
    body = ProtoField.string("s2s.error", "Error", base.NONE, "Of a terminal frame: JSON"),
    part = ProtoField.bytes("s2s.part", "Part of a frame", base.NONE, "It goes on, and is shown, in a later piece"),
    undecoded = ProtoField.bytes("s2s.undecoded", "Undecoded"),
}
local PATHS = { AppendInput = "s2s.append_input", AppendAck = "s2s.append_ack", ReadBatch = "s2s.read_batch" }
local protobuf_fields = {}
for message, path in pairs(PATHS) do
    protobuf_fields[path] = ProtoField.none(path, message)
    protobuf.declare(tables, message, path, protobuf_fields)
end
local all = {}
for _, fields in ipairs({ f, protobuf_fields }) do
    for _, field in pairs(fields) do
        all[#all + 1] = field
    end
end
proto.fields = all

local malformed = ProtoExpert.new("s2s.malformed", "Malformed S2S", expert.group.MALFORMED, expert.severity.ERROR)
local failed = ProtoExpert.new("s2s.failed", "Session ended by an error", expert.group.RESPONSE_CODE,
    expert.severity.NOTE)
local compressed = ProtoExpert.new("s2s.compressed", "Not decompressed: this Wireshark cannot", expert.group.UNDECODED,
    expert.severity.CHAT)
proto.experts = { malformed, failed, compressed }

local json = Dissector.get("json")

-- Methods of a range that decompress, by the flags; which of them there are depends on Wireshark's version.
local DECOMPRESS = { [1] = { "uncompress_zstd" }, [2] = { "uncompress_zlib", "uncompress" } }

local function decompressed(range, compression)
    for _, method in ipairs(DECOMPRESS[compression] or {}) do
        local fine, plain = pcall(function() return range[method](range, "Decompressed S2S payload") end)
        if fine and plain ~= nil then return plain end
    end
    return nil
end

local function measure(data, at)
    local left = #data - at + 1
    if left < LENGTH then return nil, LENGTH end
    local a, b, c = data:byte(at, at + 2)
    local length = a * 65536 + b * 256 + c
    if length > tables.longest then error({ wrong = "a frame of " .. length .. " bytes" }, 0) end
    if length == 0 then error({ wrong = "an empty frame" }, 0) end
    if left < LENGTH + length then return nil, LENGTH + length end
    return LENGTH + length
end

local function message_of(data, from_client)
    if from_client then return "AppendInput" end
    return protobuf.has(data, 3) and "AppendAck" or "ReadBatch" -- all three fields of an AppendAck are always there
end

local function add_message(branch, tvb, start, length, from_client)
    local data = length > 0 and tvb(start, length):raw() or ""
    local message = message_of(data, from_client)
    local path = PATHS[message]
    branch:add(f.message, message):set_generated()
    local tree = length > 0 and branch:add(protobuf_fields[path], tvb(start, length))
        or branch:add(protobuf_fields[path])
    local fine, counts = pcall(protobuf.add, tables, protobuf_fields, tree, tvb, start, length, message, path)
    if not fine then
        if type(counts) ~= "table" then error(counts, 0) end
        tree:add_proto_expert_info(malformed, counts.wrong)
        return message .. " [malformed: " .. counts.wrong .. "]"
    end
    if message == "AppendAck" then return message end
    local records = counts[path .. ".records"] or 0
    branch:add(f.records, records):set_generated()
    if message == "ReadBatch" and records == 0 and counts[path .. ".tail"] ~= nil then
        branch:add(f.heartbeat, true):set_generated()
        return "heartbeat"
    end
    return message .. " " .. records .. (records == 1 and " record" or " records")
end

local function add_terminal(branch, tvb, start, length, pinfo)
    branch:add(f.message, "Terminal"):set_generated()
    if length < 2 then
        branch:add_proto_expert_info(malformed, "a terminal frame has a status")
        return "Terminal [malformed]"
    end
    local status = tvb(start, 2):uint()
    branch:add(f.status, tvb(start, 2)):add_proto_expert_info(failed, "status " .. status)
    if length == 2 then return "Terminal " .. status end
    local range = tvb(start + 2, length - 2)
    local text = reading.shown(range:raw(), 65535)
    branch:add(f.body, range, text)
    if json ~= nil then json:call(range:tvb(), pinfo, branch) end
    return "Terminal " .. status .. " " .. reading.shown(range:raw(), 100)
end

local function add_payload(branch, tvb, start, length, compression, from_client)
    if length > 0 then branch:add(f.payload, tvb(start, length)) end
    if compression == 0 then return add_message(branch, tvb, start, length, from_client) end
    if compression == 3 then
        branch:add_proto_expert_info(malformed, "an unknown compression")
        return "[malformed]"
    end
    local name = COMPRESSIONS[compression]
    local plain = length > 0 and decompressed(tvb(start, length), compression)
    if not plain then
        branch:add_proto_expert_info(compressed)
        return "compressed by " .. name
    end
    local inner = plain:tvb()
    return add_message(branch, inner, 0, inner:len(), from_client) .. ", " .. name
end

-- Adds one whole frame. Gives what the packet list says of it.
local function add_frame(tree, tvb, start, length, pinfo, from_client)
    local branch = tree:add(proto, tvb(start, length))
    local flags = tvb(start + LENGTH, 1):uint()
    branch:add(f.length, tvb(start, LENGTH))
    local item = branch:add(f.flags, tvb(start + LENGTH, 1))
    for _, field in ipairs({ f.terminal, f.compression, f.reconnect }) do
        item:add(field, tvb(start + LENGTH, 1))
    end
    local at, size = start + HEAD, length - HEAD
    local info
    if flags >= 0x80 then
        info = add_terminal(branch, tvb, at, size, pinfo)
    else
        info = add_payload(branch, tvb, at, size, math.floor(flags / 32) % 4, from_client)
    end
    branch:append_text(", " .. info)
    return info
end

-- Adds a message that is all of a body, without a frame. Gives what the packet list says of it.
function s2s.add_body(tree, tvb, from_client)
    local branch = tree:add(proto, tvb())
    local info = add_message(branch, tvb, 0, tvb:len(), from_client)
    branch:set_text("S2, " .. info)
    return info
end

-- Adds the frames that a piece of a session completes. Gives what the packet list says of them.
function s2s.add(found, flow, pinfo, tree, tvb, start, length, from_client)
    local infos = {}
    local function add(whole, at, size)
        infos[#infos + 1] = add_frame(tree, whole, at, size, pinfo, from_client)
    end
    local rest, at, wrong = flows.feed(found, flow, pinfo, tvb, start, length, measure, add)
    if wrong ~= nil then
        local branch = tree:add(proto, tvb(start, length))
        branch:add(f.undecoded, tvb(at, rest)):add_proto_expert_info(malformed, wrong)
        infos[#infos + 1] = "[malformed: " .. wrong .. "]"
    elseif rest > 0 then
        tree:add(proto, tvb(at, rest)):append_text(", part of a frame"):add(f.part, tvb(at, rest))
    end
    return table.concat(infos, "; ")
end

return s2s
