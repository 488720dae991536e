-- S2 over HTTP/1.1 and HTTP/2, and the controller's gRPC: which of them it is, and their sessions.
--
-- Wireshark's own dissectors do HTTP. Of HTTP/1.1 they show a body only at its end, and that of a session may come days
-- later or not at all, so the chunks of sessions are taken apart here (`penstock.http1`).

if not ... then return end

local conversations = require("penstock.conversations")
local flows = require("penstock.flows")
local http1 = require("penstock.http1")
local s2s = require("penstock.s2s")
local sse = require("penstock.sse")
local tcp = require("penstock.tcp")

local s2 = Proto("s2", "S2 over HTTP")
local PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
local LONGEST_FRAME = 0x0f -- the first byte of a frame's length: up to 1 MiB
local LAST_TYPE = 9

s2.prefs.ports = Pref.range("S2 TCP ports", "8080", "Ports of S2 servers: HTTP/1.1 and HTTP/2", 65535)
s2.prefs.controller_ports = Pref.range("Controller TCP ports", "9090", "Ports of Pravega's controllers: gRPC", 65535)

local malformed = ProtoExpert.new("s2.malformed", "Malformed HTTP", expert.group.MALFORMED, expert.severity.ERROR)
s2.experts = { malformed }

local http2 = Dissector.get("http2")
local stream_id_of = Field.new("http2.streamid")

local is_server_port

local function direction(found, pinfo)
    return found:from_client(pinfo, is_server_port) and "client" or "server"
end

-- Whether a frame of HTTP/2 may begin so, of a type and a length that are usual. No text of HTTP/1.1 does.
local function looks_like_a_frame(start)
    local high, _, _, kind, _, stream = start:byte(1, 6)
    return stream ~= nil and high <= LONGEST_FRAME and kind <= LAST_TYPE and stream < 0x80
end

-- Which HTTP: 1 or 2. nil: cannot be told yet.
local function version_of(found, tvb)
    if found.http == nil then
        local start = tvb:raw(0, math.min(tvb:len(), #PREFACE))
        if #start < #PREFACE and PREFACE:sub(1, #start) == start then return nil end
        local preface = start == PREFACE
        found.http = (preface or looks_like_a_frame(start)) and 2 or 1
    end
    return found.http
end

function s2.dissector(tvb, pinfo, tree)
    local found = conversations.current(pinfo)
    local other = tcp.chosen(s2, found)
    if other ~= nil then return other.dissector(tvb, pinfo, tree) end
    local version = version_of(found, tvb)
    if version == nil then
        if pinfo.can_desegment > 0 then
            pinfo.desegment_offset, pinfo.desegment_len = 0, DESEGMENT_ONE_MORE_SEGMENT
            return tvb:len()
        end
        version = 1
    end
    if version == 2 then return tcp.hand_over(http2, tvb, pinfo, tree, false, s2, malformed) end
    return http1.dissect(found, tvb, pinfo, tree, direction(found, pinfo))
end

local function stream_id()
    local all = { stream_id_of() }
    return #all > 0 and all[#all].value or 0
end

-- A session's bytes in HTTP/2, as they come. Where Wireshark's HTTP/1.1 is at work, all of them at the end.
local function session(add, name)
    return function(tvb, pinfo, tree)
        if not conversations.has_fields() then return tvb:len() end -- whose bytes these are cannot be told
        local found = conversations.current(pinfo)
        local side = direction(found, pinfo)
        local flow = flows.of(found, side .. " " .. name .. " " .. stream_id())
        local info = add(found, flow, pinfo, tree, tvb, 0, tvb:len(), side == "client")
        if info ~= "" then pinfo.cols.info:append(", " .. info) end
        return tvb:len()
    end
end

s2s.proto.dissector = session(s2s.add, "s2s")
sse.proto.dissector = session(sse.add, "sse")
for _, name in ipairs({ "streaming_content_type", "media_type" }) do
    DissectorTable.get(name):add("s2s/proto", s2s.proto)
    DissectorTable.get(name):add("text/event-stream", sse.proto)
end

-- Bodies of single requests and answers, in conversations of S2 only: others have other messages.
local message = Proto("s2_body", "S2 message")
local protobuf = Dissector.get("protobuf")

function message.dissector(tvb, pinfo, tree)
    local found = conversations.current(pinfo)
    local ours = conversations.routed(found) == s2 or is_server_port(pinfo.src_port) or is_server_port(pinfo.dst_port)
    if not ours then return protobuf:call(tvb, pinfo, tree) end
    local info = s2s.add_body(tree, tvb, direction(found, pinfo) == "client")
    pinfo.cols.info:append(", " .. info)
    return tvb:len()
end

for _, name in ipairs({ "application/protobuf", "application/x-protobuf" }) do
    DissectorTable.get("media_type"):add(name, message)
end

is_server_port = tcp.ports(s2, { ports = "8080", controller_ports = "9090" })

-- On other ports Wireshark finds HTTP/1.1 by itself.
s2:register_heuristic("tcp", function(tvb, pinfo, tree)
    if tvb:len() < #PREFACE or tvb:raw(0, #PREFACE) ~= PREFACE then return false end
    pinfo.conversation = s2
    s2.dissector(tvb, pinfo, tree)
    return true
end)

return s2
